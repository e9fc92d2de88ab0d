#pragma once
// Given faults of scenarios that are simulated once: kinds collective, network, replay and cluster.
//
// Claims: links fail and slow down at their instants (workloads/faults/link_faults.hpp); a slow GPU slows the kernels of a training job
// while it lasts, and through its collectives the others; a GPU or node that dies, hangs or is taken away stops what it takes part in,
// which is an error that says so: nothing here brings it back.

#include "tools/driver/run_output.hpp"
#include "tools/driver/scenario_spec.hpp"
#include "workloads/faults/link_faults.hpp"

namespace orrery::driver {

/// Checks the section `faults` of such a kind. `root`: of the scenario.
void check_given_faults(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors);

/// Those of the section and of its trace. Throws ConfigError for what a trace holds and the kind cannot honour.
[[nodiscard]] std::vector<TimedFault> given_faults(const Scenario& scenario, const Fabric& fabric);
/// Of these, those on links.
[[nodiscard]] std::vector<TimedFault> link_faults(const std::vector<TimedFault>& faults, const Fabric& fabric);

/// When which rank of a job is slow, in the job's time.
[[nodiscard]] std::vector<SlowSpell> slow_spells(const std::vector<TimedFault>& faults, const Fabric& fabric,
                                                 const Placement& placement, std::uint32_t ranks, SimTime start);

/// Throws InfeasibleError when something that a run needs to its end has gone before. `out`: of the run, as if it had not.
void require_alive(const Scenario& scenario, const std::vector<TimedFault>& faults, const Fabric& fabric,
                   const RunOutput& out);
/// What to say of faults beside the reason why a run can never end; empty: nothing.
[[nodiscard]] std::string never_mended(const std::vector<TimedFault>& faults);

}  // namespace orrery::driver
