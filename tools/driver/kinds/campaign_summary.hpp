#pragma once
// What campaigns come to, as metrics, notes and a timeline.

#include "tools/driver/scenario.hpp"
#include "workloads/faults/campaign.hpp"

namespace orrery::driver {

/// s: what is longer never comes.
inline constexpr double kNoInterval = 1e10;

[[nodiscard]] double goodput_of(const CampaignResult& run);

/// The mean of rounds in which replicas are slow, and what a code makes of them; nothing without rounds.
void add_rounds(const Scenario& scenario, const std::vector<RoundsPlayed>& rounds, Summary& out);
void add_metrics(const CampaignPlan& plan, const CheckpointSetting& setting, const std::vector<CampaignResult>& runs,
                 Summary& out);
/// Devices draw the power of an iteration while they train, whether it is kept or not, and that of idle boards in all other time.
void add_energy(const Scenario& scenario, const std::vector<CampaignResult>& runs, Summary& out);
/// The whole cluster of the job and its standbys, for as long as the campaign lasts; nothing where a device has no price.
void add_cost(const Scenario& scenario, const std::vector<CampaignResult>& runs, Summary& out);
void add_notes(const CampaignPlan& plan, const std::vector<CampaignResult>& runs, Summary& out);
/// The first campaign over time.
[[nodiscard]] Timeline draw(const CampaignResult& run);

}  // namespace orrery::driver
