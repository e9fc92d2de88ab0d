#pragma once
// Campaigns of kind training: the job that a campaign of workloads/faults asks for, made of iterations as they are simulated.

#include "tools/driver/kinds/training.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/training/simulation/simulate.hpp"

namespace orrery::driver {

/// The job of a training scenario as faults see it. Throws as shape_of does.
[[nodiscard]] JobShape job_shape(const Scenario& scenario);

/// Machines from outside of it may join the job. Not where it shrinks on a cluster of groups: nothing says of which group they are.
[[nodiscard]] inline bool takes_standbys(const Scenario& scenario) {
    return !scenario.cluster.mixed || !scenario.as<TrainingKind>().faults.recovery.shrinks;
}

/// Bytes of a checkpoint of all that the job needs to go on, each part once: as given, or of its parameters.
[[nodiscard]] double checkpoint_bytes(const Scenario& scenario);

/// The timeline of a run with that of its campaign behind it.
[[nodiscard]] Timeline with_campaign(const RunOutput& out);

/// Checks the section `faults`. `root`: of the scenario.
void check_faults(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors);

/// Runs the campaign and adds its metrics, notes and timeline. `input`: of the iteration without faults, whose `result` is given.
/// `variants`: campaigns to run beside it.
void add_campaign(const Scenario& scenario, const TrainingInput& input, const TrainingResult& result,
                  const std::vector<CampaignVariant>& variants, RunOutput& out);

}  // namespace orrery::driver
