#pragma once
// What a simulation that could go on for ever says about its steady state: where its warm-up ends, and how far chance moves a mean.
//
// Claims: the mean over the rest of a run after its warm-up, with a confidence interval from non-overlapping batches of it.
// Scope: series of one long run whose law no longer changes. Limits: batches must be long against the memory of the process;
// `correlation` says when they are not. A warm-up that is longer than half of the series is not found, only refused.
// Sources: White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69(6), 1997, and White,
// Cobb and Spratt, "A comparison of five steady-state truncation heuristics", WSC 2000 (MSER on batched series, cut refused in the second half);
// Schmeiser, "Batch size effects in the analysis of simulation output", Operations Research 30(3), 1982 (10 to 30 batches);
// Law, "Simulation Modeling and Analysis", 5th edition, sections 9.5.3 (batch means) and 9.5.1 (ratio of sums by residuals).
// Validated by tests/sim/record/batch_means_test.cpp (autoregressive series of known mean and memory).

#include "sim/base/namespaces.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace orrery::record {

/// Quantile of Student's t for a two-sided interval. Precondition: confidence 0.9 or 0.95, freedom at least 1.
[[nodiscard]] double student_t(double confidence, std::size_t freedom);

/// How many values at the front of a series are warm-up, by MSER: what is left has the least variance of its mean. Nothing when that
/// would be more than half of it: the series is too short to tell.
[[nodiscard]] std::optional<std::size_t> warm_up_of(std::span<const double> series);

struct BatchEstimate {
    double value = 0;        ///< sum of what was counted over the sum of what it refers to
    double half_width = 0;   ///< of the interval
    double correlation = 0;  ///< of a batch with the next one

    /// Whether the batches are uncorrelated as far as so many of them can tell (one-sided test at 95 %).
    [[nodiscard]] bool independent(std::size_t batches) const;
    /// Half-width over value; 0 where both are 0.
    [[nodiscard]] double relative() const;
};

/// The ratio of two sums with its interval: per batch `counted[i]`, such as tokens, and `reference[i]`, such as seconds or requests.
/// Precondition: equally many, at least two; the references add up to more than 0.
[[nodiscard]] BatchEstimate ratio_of_batches(std::span<const double> counted, std::span<const double> reference,
                                             double confidence);

/// The same numbers in fewer groups of equally many, the first ones left out where they do not divide.
[[nodiscard]] std::vector<double> grouped(std::span<const double> series, std::size_t groups);

}  // namespace orrery::record
