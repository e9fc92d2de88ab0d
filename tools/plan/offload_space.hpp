#pragma once
// Where `orrery plan` tries to keep states, weights and activations: in the memories of the node that the scenario's plan offloads to.
//
// The space: each thing that the plan's `offload` section names, on the device, or whole in one of the node's tiers, of the optimizer's
// states also half of them; gradients in DRAM or where the states are. The step of the host and the prefetch are as in the scenario.

#include "tools/driver/scenario.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/simulation/simulate.hpp"

#include <string>
#include <vector>

namespace orrery::plan {

/// The scenario's own where its plan offloads nothing.
[[nodiscard]] std::vector<OffloadPlan> offload_choices(const Scenario& scenario);

/// What ranks of these numbers may offload; false: a plan that is refused.
[[nodiscard]] bool may_offload(const PlanSpec& plan);

/// Seconds that copies between memories and updates by the host add to passes of `passes` seconds: bytes over the rate of the slowest
/// memory or link, copies beside the passes. 0 where nothing is away.
[[nodiscard]] double offload_seconds(const TrainingInput& input, double passes);

/// Whether what the plan keeps in the node's memories fits there.
[[nodiscard]] bool fits_tiers(const TrainingInput& input);

/// ", optimizer in dram, weights half in nvme".
[[nodiscard]] std::string describe_offload(const OffloadPlan& offload);
/// "plan.offload.optimizer.tier=dram"...
void assign_offload(const OffloadPlan& offload, std::vector<std::string>& assignments);

}  // namespace orrery::plan
