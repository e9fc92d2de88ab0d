#pragma once
// Which replica takes a request: one policy per file, one row each. A router owns its parameters.

#include "sim/config/policy.hpp"
#include "workloads/serving/requests/request.hpp"

namespace orrery::serving {

class EngineState;

/// Engines, by number of their replica.
using EngineStates = std::vector<const EngineState*>;

struct RoutedRequest {
    std::uint32_t session;
    const PromptContent& content;
    std::uint32_t prompt;  ///< tokens
};

/// What a policy needs to tell replicas apart.
struct RouterNeeds {
    bool prefix_cache = false;
    bool sessions = false;
};

class Router {
  public:
    virtual ~Router() = default;
    /// One of `among`, replicas that take requests. Precondition: not empty.
    [[nodiscard]] virtual std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                                               const RoutedRequest& request) = 0;
    [[nodiscard]] virtual RouterNeeds needs() const { return {}; }
};
[[nodiscard]] const PolicyTable<Router>& router_table();

using RouterChoice = PolicyChoice<Router>;

}  // namespace orrery::serving
