#pragma once
// What a training scenario gives its lowering: the devices of its groups, its ranks' places, and whether they fit each other.

#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/training/simulation/simulate.hpp"

namespace orrery::driver {

/// What its nodes are priced by: one, or that of each group of a cluster of groups. Refers to the scenario.
[[nodiscard]] std::vector<GroupDevice> node_devices(const Scenario& scenario, ModelCache& models);

/// What a training scenario simulates; refers to its arguments, which must outlive it. Throws ConfigError or
/// InfeasibleError when the plan does not fit the model and the cluster.
[[nodiscard]] TrainingInput training_input(const Scenario& scenario, ModelCache& models, const Fabric& fabric,
                                           const Placement& placement);
/// The same with devices that are known already, for many plans of one scenario.
[[nodiscard]] TrainingInput training_input(const Scenario& scenario, const std::vector<GroupDevice>& devices,
                                           const Fabric& fabric, const Placement& placement);

}  // namespace orrery::driver
