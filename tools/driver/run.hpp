#pragma once
// Runs of scenarios.

#include "tools/driver/run_output.hpp"
#include "tools/driver/scenario.hpp"

namespace orrery::driver {

/// Runs a scenario. Throws ConfigError or InfeasibleError.
[[nodiscard]] RunOutput run_scenario(const Scenario& scenario, ModelCache& models, const RunOptions& options);

/// Adds what a packet run counts.
void add_packet_metrics(const std::optional<PacketStatistics>& packets, Summary& out);

}  // namespace orrery::driver
