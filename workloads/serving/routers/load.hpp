#pragma once
// What routers measure replicas by.

#include "sim/base/random.hpp"
#include "workloads/serving/engine/engine_state.hpp"
#include "workloads/serving/routers/router.hpp"

namespace orrery::serving {

[[nodiscard]] inline std::size_t outstanding_requests(const EngineState& engine) {
    return engine.all_outstanding();
}

[[nodiscard]] inline std::size_t waiting_requests(const EngineState& engine) {
    return outstanding_requests(engine) - engine.running.size() - engine.in_flight();
}

/// Random numbers for one request alone, so that what runs beside it changes nothing.
[[nodiscard]] inline RandomStream draw_for(const EngineStates& engines, const RoutedRequest& request) {
    return {mix64(engines.front()->limits().seed ^ mix64(request.request)), "serving/router"};
}

/// The first of the replicas with the least measure.
template <class Measure>
[[nodiscard]] std::uint32_t least(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                                  const Measure& measure) {
    std::uint32_t best = among.front();
    for (const std::uint32_t i : among) {
        if (measure(*engines[i]) < measure(*engines[best])) {
            best = i;
        }
    }
    return best;
}

}  // namespace orrery::serving
