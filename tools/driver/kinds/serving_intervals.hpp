#pragma once
// 90 % intervals of the metrics of a serving run: what chance moves, and what the model errs.
//
// Claims: chance, of runs that were watched for their steady state: from batches of requests, in order of arrival, and of time
// (workloads/serving/metrics/steady_state.hpp); of a quantile from the share of requests below it, whose batch means move by
// chance, read off the ordered values. The model, of engines with `software`: log(measured / predicted) of nine of ten
// measured runs of that engine, by latency, for dense models and mixtures of experts apart; wider where the fits of a device's
// products spread more than those of the measured runs. Both are independent: their half-widths add as squares of logarithms.
// Scope: times to the first token, per token and of requests; throughput where the engine sets it (closed loops, all at once, overload) and
// not the load. Step times from the scenario have no `software`.
// Limits: gaps between tokens, the greatest values and counts have none; quantiles err as means do, which sources report; engines
// with fewer than ten runs in the declared half have the width of all.
// Sources: Chen and Kelton, "Estimating steady-state distributions via simulation-generated histograms", Computers & Operations
// Research 35(4), 2008, section 2 (quantiles by inverting the distribution function); Lei, G'Sell, Rinaldo, Tibshirani,
// Wasserman, "Distribution-free predictive inference for regression", JASA 113, 2018, section 2.2 (the quantile of n errors
// that covers the next one: the ceil(0.9 (n + 1))-th).
// Validated by tests/tools/steady_test.cpp (chance) and `orrery validate serving`, which counts the runs inside (the model).

#include "sim/device/cost_model.hpp"
#include "sim/record/summary.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/serving/metrics/outcome.hpp"
#include "workloads/serving/spec.hpp"

namespace orrery::driver {

/// Half-widths of log(time) that the model leaves, of latencies as they are measured.
struct ModelWidths {
    double tpot = 0;
    double ttft = 0;
    double end_to_end = 0;
};
/// Those of all engines, of dense models and of mixtures of experts: `orrery validate serving` prints what the declared half gives.
inline constexpr ModelWidths kDenseWidths{0.163, 0.562, 0.166};
inline constexpr ModelWidths kExpertsWidths{0.272, 0.567, 0.276};
/// Of runs with replicas of their own for prompts and for decoding, where they are larger than the engine's: what every other one of
/// 341 leaves (`orrery validate disaggregated`, 2026-11-29).
inline constexpr ModelWidths kSplitWidths{0.292, 1.339, 0.354};

/// Those of this engine and kind of model.
[[nodiscard]] ModelWidths widths_of(const HostSpec& software, bool experts);
/// Standard deviation of log(measured / predicted) of a decode's products on this device.
[[nodiscard]] double products_spread(const CostModel& device, const ModelSpec& model);

/// Widens the metrics of a run by what the model errs, after add_steady_state. `spread`: the largest products_spread of its devices.
void add_model_error(const Scenario& scenario, double spread, Summary& summary);

/// Bounds the metrics of a run that has a steady state or none, adds `overloaded` and `sustainable_rps`, and says what was measured.
void add_steady_state(const ServiceResult& result, Summary& summary);

}  // namespace orrery::driver
