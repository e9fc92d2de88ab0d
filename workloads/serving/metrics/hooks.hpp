#pragma once
// What those who watch a service are told.

#include "workloads/serving/engine/engine_state.hpp"
#include "workloads/serving/metrics/outcome.hpp"

#include <functional>

namespace orrery::serving {

struct ServiceHooks {
    std::function<void(double)> progress;
    /// For checks: sees every iteration before it runs.
    std::function<void(std::uint32_t replica, const Batch&, const EngineState&)> iteration;
    /// For explanations: sees every batch when it leaves the last stage, before its tokens are given; `planned`: when it was
    /// put together.
    std::function<void(std::uint32_t replica, const Batch&, const EngineState&, SimTime planned, SimTime now)> ran;
    /// For explanations: sees every request that was answered; null: it is not among the measured ones.
    std::function<void(const Sequence&, const RequestOutcome*)> served;
    /// For tables: sees every request when it is accounted for, once.
    std::function<void(const Sequence&, Ending, SimTime now)> ended;
};

}  // namespace orrery::serving
