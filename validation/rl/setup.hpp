#pragma once
// Scenarios of measured runs of reinforcement learning, written from a row of their tables by the readings of README.md.

#include "sim/record/facts_table.hpp"

#include <string>

namespace orrery::validation {

/// The mean of a lognormal distribution with this sigma, that has the mean `wanted` once what is longer than `most` is cut to it.
/// Precondition: 0 < wanted < most.
[[nodiscard]] double mean_before_cut(double wanted, double sigma, double most);

/// A step, of steps.csv.
[[nodiscard]] std::string step_scenario(const FactsRow& row);
/// A step of few short samples, for the weights alone, of weights.csv.
[[nodiscard]] std::string weights_scenario(const FactsRow& row);

}  // namespace orrery::validation
