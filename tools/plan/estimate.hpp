#pragma once
// The time of a training plan in closed form, to choose the plans that are worth simulating.
//
// Claims: m micro-batches through the slowest stage, the pipeline's filling and draining divided by the chunks a stage,
// sends that are waited for, the reduction of gradients, the gather of weights and the optimizer, each alone on its
// links. Prices of passes are those of the simulation.
// Limits: no contention between transfers, no waiting inside the schedule but the bubble. It ranks and does not
// predict; what is reported is simulated.
// Sources: Narayanan et al., SC21, section 2.2 (bubble).
// Validated by tests/tools/plan_test.cpp against the simulation of whole plan spaces.

#include "workloads/training/lower.hpp"

namespace orrery::inline planning {

/// Seconds of one iteration. `bubble`: of the plan's schedule in its shape. Where documents differ, their middle micro-batch on the
/// rank with the most to attend to stands for all.
[[nodiscard]] Seconds estimate_iteration(const TrainingInput& input, double bubble);

}  // namespace orrery::inline planning
