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
//   * software: the errors of measured runs (host time, versions), by preset: the ninth decile of
//     its declared half, not a standard deviation, because their tails are fat. It holds what the other parts err in those runs,
//     so that these widen the interval only where they are less certain than there (a device without fits). Runs of a
//     regime that errs more than the dense runs behind the presets have the width of that regime.
// A part weighs with its share of the iteration; bubbles stretch with what they wait for. Parts err independently of
// each other, and in full within themselves, so nothing averages to zero with the number of kernels, layers or GPUs.
// Scope: training runs. Limits: software with fewer than ten measured runs has the width of all presets together.
// Sources: spreads of kernels from the fits (held-back rows, other collections); of collectives and software from
// `orrery validate`, see the constants in interval.cpp.
// Validated by `orrery validate training`, which counts how many measured runs lie inside.

#include "sim/device/cost_model.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/training/simulation/simulate.hpp"

namespace orrery::driver {

/// Half-width of log(time) that software leaves where its preset gives none: `orrery validate training` prints what the declared
/// half of all runs gives for it.
inline constexpr double kSoftwareWidth = 0.119;
/// Standard deviation of the other parts in those runs, as it also prints it: what the width of the software holds already.
inline constexpr double kValidatedSpread = 0.067;
/// Half-width of the 90 % interval of a normal distribution, in standard deviations.
inline constexpr double kNinety = 1.6448536269514722;

/// Standard deviation of log(measured / predicted) of an iteration, without what software leaves.
[[nodiscard]] double parts_spread(const Scenario& scenario, const TrainingResult& result, const CostModel& device);

/// Runs that err alike and more than those that presets of software were fitted on.
struct TrainingRegime {
    const char* name;
    bool (*has)(const Scenario& scenario);
    double width;  ///< half-width of the 90 % interval of log(time): `orrery validate training` prints it
};

/// The regime of a run; null: none, and the width is that of its software.
[[nodiscard]] const TrainingRegime* regime_of(const Scenario& scenario);

/// Half-width of the 90 % interval of log(time) that the software of a run leaves: what the scenario says, or the larger of those of
/// its preset and its regime.
[[nodiscard]] double software_width(const Scenario& scenario);

/// Square of the half-width that a spread of the other parts adds, beyond that of the runs which widths of software come from.
[[nodiscard]] double square_beyond(double spread);

/// Half-width of the 90 % interval of log(time) of an iteration.
[[nodiscard]] double iteration_width(const Scenario& scenario, const TrainingResult& result, const CostModel& device);

/// Sets `low` and `high` of a metric that is proportional to the time or to its inverse.
void set_interval(Metric& metric, double width);

}  // namespace orrery::driver
