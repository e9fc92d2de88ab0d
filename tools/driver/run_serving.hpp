#pragma once
// Serving scenarios: from their specification to a summary.

#include "tools/driver/scenario.hpp"
#include "workloads/serving/service.hpp"

namespace orrery {

/// Sees a serving run from inside, for explanations.
struct ServingObserver {
    /// Every pipeline stage of every pool, in order, before the run; what it refers to lasts as long as the run.
    std::function<void(std::size_t pool, const ServingModel&)> stage;
    ServiceHooks hooks;
};

/// Runs a scenario of kind serving. Throws ConfigError or InfeasibleError.
void run_serving(const Scenario& scenario, ModelCache& models, const RunOptions& options, const Fabric& fabric,
                 RunOutput& out);

}  // namespace orrery
