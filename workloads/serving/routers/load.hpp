#pragma once
// What routers measure replicas by.

#include "workloads/serving/engine/engine_state.hpp"
#include "workloads/serving/routers/router.hpp"

namespace orrery::serving {

[[nodiscard]] inline std::size_t outstanding_requests(const EngineState& engine) {
    return engine.all_outstanding();
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
