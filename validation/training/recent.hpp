#pragma once
// Runs of 2025 and 2026 (validation/training/recent): scored apart from the runs that constants come from, by kind and hardware.

#include "validation/training/points.hpp"
#include "validation/validate.hpp"

#include <vector>

namespace orrery::validation {

/// Whether a point is one of them: subsets recent-dense, recent-experts, recent-adapters and recent-tuning.
[[nodiscard]] bool is_recent(const TrainingPoint& point);

/// Prints the tables of predicted points and the counts of what `data` says was left out, and gives the scores.
[[nodiscard]] std::vector<Score> score_recent(const std::vector<TrainingPoint>& points, const DataDirectory& data,
                                              const Terminal& terminal);

}  // namespace orrery::validation
