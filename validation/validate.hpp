#pragma once
// Predictions against measured runs.

#include "tools/driver/scenario.hpp"
#include "tools/program/terminal.hpp"
#include "validation/scatter.hpp"

namespace orrery {

/// Scores training runs (validation/training/*.yaml) and prints errors by source, hardware and scale, the ranking of
/// plans, and how far the unscored runs are inside the range of what their sources leave open. With `fit`, first fits
/// the three constants of each software generation on the declared half (even positions of each source).
/// `svg`: file for a picture of predicted against measured; empty: none. Returns the scored points.
std::vector<ScatterPoint> validate_training(ModelCache& models, const Terminal& terminal, bool points, bool fit,
                                            const std::string& svg);

/// Scores the collective model on measured collectives (validation/collectives/*.csv) by system.
void validate_collectives(ModelCache& models, const Terminal& terminal, bool points);

}  // namespace orrery
