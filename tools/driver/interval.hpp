#pragma once
// The 90 % interval of a predicted training iteration.
//
// Claims: the logarithm of measured over predicted time is normal with a variance of independent parts, each for what
// errs together:
//   * matrix products and attention: a device's fits err alike for all shapes by their systematic spread; what single
//     shapes err beyond it averages over the distinct shapes of a layer (four products and attention, forward and twice
//     backward), not over its thousands of kernels;
//   * memory-bound kernels and the optimizer: their streaming rate;
//   * communication: the collective model;
//   * software: what kernels and collectives leave of measured runs (host time, stragglers, versions).
// A part weighs with its share of the iteration; bubbles stretch with what they wait for. Parts err independently of
// each other, and in full within themselves, so nothing averages to zero with the number of kernels, layers or GPUs.
// Scope: training runs of known software. Limits: one spread of software for all generations; no fat tails.
// Sources: spreads of kernels from the fits (held-back rows, other collections); of collectives and software from
// `orrery validate`, see the constants in interval.cpp.
// Validated by `orrery validate training`, which counts how many measured runs lie inside.

#include "sim/device/cost_model.hpp"
#include "tools/driver/scenario.hpp"

namespace orrery {

/// Part of the spread that software leaves: `orrery validate training` prints what the declared half of the runs gives for it.
inline constexpr double kSoftwareSpread = 0.096;
/// Half-width of the 90 % interval of a normal distribution, in standard deviations.
inline constexpr double kNinety = 1.6448536269514722;

/// Standard deviation of log(measured / predicted) of an iteration.
[[nodiscard]] double iteration_spread(const Scenario& scenario, const TrainingResult& result, const CostModel& device);

/// Sets `low` and `high` of a metric that is proportional to the time or to its inverse.
void set_interval(Metric& metric, double spread);

}  // namespace orrery
