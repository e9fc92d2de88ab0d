#pragma once
// Rings side by side, of which each rank sends on what it has got, step after step.

#include "workloads/collective/message_run.hpp"

namespace orrery::collective {

struct Rings {
    std::vector<std::vector<std::uint32_t>> members;  ///< ranks of each ring in their order; equally many, two or more
    double bytes = 0;                                 ///< of a message
    std::uint32_t steps = 0;                          ///< messages of each member
};

/// Without a stored schedule, at fidelity fluid. Where messages go alike (alike.hpp) and no other job shares the fabric, one of
/// each class stands for all of it.
[[nodiscard]] std::unique_ptr<MessageRun> add_rings(Simulation& simulation, const Placement& placement,
                                                    const Rings& rings, const MessageRunOptions& options,
                                                    SimTime start = SimTime());
/// Runs rings alone.
[[nodiscard]] MessageRunResult run_rings(const Fabric& fabric, const Rings& rings, const MessageRunOptions& options);

}  // namespace orrery::collective
