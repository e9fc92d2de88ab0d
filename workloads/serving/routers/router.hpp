#pragma once
// Which replica takes a request: one policy per file, one row each. A router owns its parameters.

#include "sim/config/policy.hpp"
#include "workloads/serving/requests/request.hpp"

#include <functional>

namespace orrery::outside {
class Policies;
}

namespace orrery::serving {

class EngineState;

/// Engines, by number of their replica.
using EngineStates = std::vector<const EngineState*>;

struct RoutedRequest {
    std::uint64_t request;  ///< its number
    SimTime now;
    std::uint32_t session;
    const PromptContent& content;
    std::uint32_t prompt;  ///< tokens
};

/// What a policy needs to tell replicas apart.
struct RouterNeeds {
    bool prefix_cache = false;
    bool sessions = false;
    bool outside = false;  ///< its decisions come from outside: it must be attached before its first choice
};

class Router {
  public:
    virtual ~Router() = default;
    /// One of `among`, replicas that take requests. Precondition: not empty.
    [[nodiscard]] virtual std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                                               const RoutedRequest& request) = 0;
    [[nodiscard]] virtual RouterNeeds needs() const { return {}; }
    /// Before the run, of each replica that it may choose: a router that is told of what engines do asks for it here. The clock outlives it.
    virtual void watch(std::uint32_t /*replica*/, EngineState&, const std::function<SimTime()>& /*now*/) {}
    /// Before its first choice. `number`: 0 of the router to replicas that take requests, 1 of that to those that decode.
    virtual void attach(outside::Policies&, std::uint32_t /*number*/) {}
};
[[nodiscard]] const PolicyTable<Router>& router_table();

using RouterChoice = PolicyChoice<Router>;

}  // namespace orrery::serving
