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

#include "workloads/training/lowering/lower.hpp"
#include "workloads/training/simulation/simulate.hpp"

#include <memory>
#include <vector>

namespace orrery::plan {

/// Estimates one plan after another, and keeps what the passes of the last family cost (plan_space.hpp).
class Estimator {
  public:
    Estimator();
    ~Estimator();

    /// Seconds of one iteration. `bubble`: of the plan's schedule in its shape. Where documents differ, their middle micro-batch on the
    /// rank with the most to attend to stands for all.
    [[nodiscard]] Seconds iteration(const TrainingInput& input, double bubble, std::size_t family = 0);

  private:
    class Estimate;
    class Passes;
    [[nodiscard]] const Passes& passes_of(const TrainingInput& input, std::size_t family);

    std::size_t family_ = 0;
    std::vector<std::unique_ptr<const Passes>> passes_;  ///< of plans of it
};

}  // namespace orrery::plan
