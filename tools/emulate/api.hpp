#pragma once
// The paths of an emulated engine: those of vLLM's server that gateways, autoscalers and load generators use.
//
// Claims: a client has its tokens when the simulation gives them, under the load of all clients together; one that leaves is taken out;
// whatever clients do, memory stays within the limits of bodies, connections and answers under way.

#include "tools/emulate/model.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace orrery::emulate {

struct EmulateSettings {
    std::string version;  ///< of orrery
    std::string address = "127.0.0.1";
    int port = 8000;
    std::string token;             ///< that clients must send; empty: none
    double fails = 0;              ///< share of the answers that fail
    std::uint64_t seed = 1;        ///< of which
    std::size_t most_answers = 0;  ///< under way; beyond that 503
};

/// Serves until `stopping`, or until a model's simulation ends. `ready`: told the port. Throws ConfigError where it cannot listen.
void serve_models(const EmulateSettings& settings, const std::vector<std::unique_ptr<EmulatedModel>>& models,
                  const std::function<void(int port)>& ready, const std::function<bool()>& stopping);

}  // namespace orrery::emulate
