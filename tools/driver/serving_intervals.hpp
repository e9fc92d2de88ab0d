#pragma once
// How far chance moves the metrics of a serving run that was watched for its steady state.
//
// Claims: 90 % intervals from batches of requests, in order of arrival, and of time (workloads/serving/metrics/steady_state.hpp); of a
// quantile from the share of requests below it, whose batch means move by chance, read off the ordered values.
// Scope: chance alone: another draw of arrivals and lengths. What the model errs is not in them.
// Limits: gaps between tokens, the greatest values and counts have none.
// Source: Chen and Kelton, "Estimating steady-state distributions via simulation-generated histograms", Computers & Operations
// Research 35(4), 2008, section 2 (quantiles by inverting the distribution function).
// Validated by tests/tools/steady_test.cpp.

#include "sim/record/summary.hpp"
#include "workloads/serving/metrics/outcome.hpp"

namespace orrery::inline driver {

/// Bounds the metrics of a run that has a steady state or none, adds `overloaded` and `sustainable_rps`, and says what was measured.
void add_steady_state(const ServiceResult& result, Summary& summary);

}  // namespace orrery::inline driver
