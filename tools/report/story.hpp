#pragma once
// The first screen of a run's report: what was asked of which model on which hardware, the answer, and what to make of it.

#include "tools/driver/run.hpp"
#include "tools/explain/explain.hpp"

#include <string>
#include <vector>

namespace orrery::report {

/// "16 nodes of 8 x NVIDIA H100 SXM 80 GB (128 GPUs)".
[[nodiscard]] std::string hardware_of(const ClusterSpec& cluster);
/// Its name; empty where the scenario has none.
[[nodiscard]] std::string model_of(const Scenario& scenario);

/// At most three findings as sentences: what limits the run, where its time goes, and what has room or is near its limit.
[[nodiscard]] std::vector<std::string> findings_of(const Scenario& scenario, const Summary& summary,
                                                   const Explanation& why);

/// A block of facts, verdicts and findings, as JSON.
[[nodiscard]] std::string story_block(const Scenario& scenario, const Summary& summary, const Explanation& why);

}  // namespace orrery::report
