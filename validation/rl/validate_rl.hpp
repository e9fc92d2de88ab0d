#pragma once
// Predictions against measured steps of reinforcement learning.

#include "validation/validate.hpp"

namespace orrery::validation {

/// Runs measured steps of reinforcement learning (validation/rl) and compares their phases, and times of weight transfers. `points`: print
/// every row.
Comparison validate_rl(const DataDirectory& data, const Terminal& terminal, bool points);

}  // namespace orrery::validation
