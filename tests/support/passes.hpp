#pragma once
// Prices of the passes of a training scenario, as a run of it has them.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "workloads/training/passes/pass_cost.hpp"
#include "workloads/training/simulation/simulate.hpp"

namespace orrery::test {

/// What is asked of the passes of a model under a plan: `asked` gets their PassCost.
template <class Asked>
auto priced(const Scenario& s, const Asked& asked) {
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    const TrainingInput in = training_input(s, model_cache(), fabric, Placement(fabric));
    return asked(PassCost(in.model, in.plan, in.software, in.device, in.gpu, in.fabric, in.collectives, in.paths));
}

}  // namespace orrery::test
