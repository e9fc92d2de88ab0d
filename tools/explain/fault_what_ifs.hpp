#pragma once
// What would raise the goodput of training under faults: campaigns again with one part of recovery, checkpoints or faults changed.

#include "tools/driver/run.hpp"
#include "tools/explain/explain.hpp"

namespace orrery::explain {

/// The campaigns to run: the scenario's own first. None for a scenario without a campaign.
[[nodiscard]] std::vector<CampaignVariant> fault_variants(const Scenario& scenario);
/// What they made. `outcomes`: of these variants.
[[nodiscard]] std::optional<CampaignLevers> fault_levers(const std::vector<CampaignVariant>& variants,
                                                         const std::vector<CampaignOutcome>& outcomes);

}  // namespace orrery::explain
