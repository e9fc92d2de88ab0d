#pragma once
// Serving scenarios: from their specification to a summary.

#include "tools/driver/scenario.hpp"

namespace orrery {

/// Runs a scenario of kind serving. Throws ConfigError or InfeasibleError.
void run_serving(const Scenario& scenario, ModelCache& models, const RunOptions& options, const Fabric& fabric,
                 RunOutput& out);

}  // namespace orrery
