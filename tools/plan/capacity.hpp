#pragma once
// The highest rate of requests that a serving scenario bears within its limits.
//
// Claims: short runs of one seed bracket the capacity by doubling and bisection of the rate's logarithm. Around what they say, runs of
// all seeds, all of one length, bracket where the mean attainment of the seeds crosses the one asked for, and it is interpolated there on
// its logit (or the mean percentile on its logarithm). The capacity and its 95 % interval are the jackknife's over the seeds, with
// Student's t of its pseudo-values: the mean of a few runs crosses too late, as most of them see less of the rare long queues than is their
// share. The interval is as much wider as interpolation on the plain attainment (or percentile) would move the crossing. Where a rate is
// refused only because its queue grows without bound, the crossing is what those runs serve per second.
// Runs that end when they look decided end too soon near the cliff, where queues grow slowly and still look borne: so they only bracket.
// A generated load is asked for at a rate; a trace is played faster or slower (its lengths, order and bursts stay).
// Limits: with a count, what is asked of a run is asked of all its requests, so a load of few requests ends before queues show: the run
// of the capacity should last many times the limit of the first token; the same holds for `requests` of a load without a count.
// Attainment is taken to fall with the rate.
// Source: Agrawal et al., "Sarathi-Serve", OSDI 2024, section 5 (capacity under a P99 limit); Zhong et al., "DistServe", OSDI
// 2024, section 2 (goodput: share of requests within all limits).
// Validated by tests/tools/capacity_test.cpp against closed forms of one server; tests/bench/steady.cpp counts how often the interval
// holds the answer of a search ten times longer.

#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/serving/spec.hpp"

#include <functional>
#include <string>
#include <vector>

namespace orrery::plan {

struct CapacityOptions {
    double attainment = 0.9;          ///< share of requests that must meet all limits; used when `percentile` is 0
    double percentile = 0;            ///< of each limited metric, such as 99: must be within its limit
    double tolerance = 0.02;          ///< relative width of the bracket at which interpolation may begin
    int seeds = 1;                    ///< the scenario's seed and those after it
    std::uint64_t requests = 25'600;  ///< of each run that the crossing is interpolated from, of a load without a count
    std::function<void(const std::string&)> found;  ///< called with a line about each rate that has been tried
};

/// One rate that was tried.
struct CapacityTrial {
    double rate = 0;  ///< requests/s
    bool within = false;
    double attainment = 0;
    double ttft = 0, tpot = 0, tbt = 0;  ///< s, at the percentile (at the 99th without one)
    double output_tokens = 0;            ///< per second
    double energy_per_token_j = 0;       ///< 0: not known
    /// USD per million input tokens, output tokens, and tokens of both; 0: not known.
    double input_cost = 0, output_cost = 0, blended_cost = 0;
    double served = 0;     ///< requests/s accounted for where the queue grows without bound; else 0
    bool refused = false;  ///< some requests could never run
    double log_excess = 0,
           excess = 0;  ///< over what is asked for, on the two scales of interpolation; not within: above 0
    std::string limit;  ///< what was exceeded
};

struct Capacity {
    double rate = 0;              ///< requests/s
    double low = 0, high = 0;     ///< 95 % interval; for one seed the last bracket
    std::vector<double> by_seed;  ///< the jackknife's pseudo-values, whose mean the rate is
    std::vector<CapacityTrial>
        trials;             ///< by rate: means over the seeds; far from the capacity of the first seed alone
    std::int64_t gpus = 0;  ///< that the replicas have
    std::uint64_t runs = 0;

    /// The last trial within the limits. Precondition: the search has ended.
    [[nodiscard]] const CapacityTrial& best() const;
};

/// Throws ConfigError for scenarios that are not serving, have no limit or no rate to change, and for bad options.
void check_capacity(const Scenario& scenario, const CapacityOptions& options);

/// Searches. Throws as check_capacity, and InfeasibleError when the limits are not met at any rate (an idle system misses them).
[[nodiscard]] Capacity find_capacity(const Scenario& scenario, ModelCache& models, const CapacityOptions& options);

/// GPUs that the replicas of a scenario have.
[[nodiscard]] std::int64_t serving_gpus(const EngineSpec& engine);

}  // namespace orrery::plan
