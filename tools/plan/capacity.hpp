#pragma once
// The highest rate of requests that a serving scenario bears within its limits.
//
// Claims: for each seed the rate is bracketed by doubling and narrowed by bisection of its logarithm, on the whole simulation; the
// capacity is the mean over the seeds of the highest rate that was borne. Its 95 % interval is that of Student's t around that mean, and
// up to the mean of the lowest rates that were not. Each seed tries rates a part of a step higher than the one before: on the same ones
// all would round to the same side, and agree on less than they know. A generated load is asked for at that rate; a trace is
// played faster or slower (its lengths, order and bursts stay).
// Without a count of requests each rate is watched until its steady state tells whether the limits are met (SteadySpec::attainment), in 64
// batches of requests or more; a rate that overloads is not borne.
// Limits: with a count, what is asked of a run is asked of all its requests, so a load of few requests ends before queues show: the run
// of the capacity should last many times the limit of the first token. Attainment is taken to fall with the rate.
// Source: Agrawal et al., "Sarathi-Serve", OSDI 2024, section 5 (capacity under a P99 limit); Zhong et al., "DistServe", OSDI
// 2024, section 2 (goodput: share of requests within all limits).
// Validated by tests/tools/capacity_test.cpp against closed forms of one server; tests/bench/steady.cpp counts how often the interval
// holds the answer of a search ten times longer.

#include "tools/driver/scenario.hpp"

#include <functional>
#include <string>
#include <vector>

namespace orrery::inline planning {

struct CapacityOptions {
    double attainment = 0.9;    ///< share of requests that must meet all limits; used when `percentile` is 0
    double percentile = 0;      ///< of each limited metric, such as 99: must be within its limit
    double tolerance = 0.02;    ///< relative width at which the search ends
    int seeds = 1;              ///< the scenario's seed and those after it
    std::uint64_t batch = 100;  ///< requests of each of 64 batches at least, and 512 at most, of a load without a count
    std::function<void(double)> progress;
};

/// One rate that was tried.
struct CapacityTrial {
    double rate = 0;  ///< requests/s
    bool within = false;
    double attainment = 0;
    double ttft = 0, tpot = 0, tbt = 0;  ///< s, at the percentile (at the 99th without one)
    double output_tokens = 0;            ///< per second
    double energy_per_token_j = 0;       ///< 0: not known
    std::string limit;                   ///< what was exceeded
};

struct Capacity {
    double rate = 0;           ///< requests/s, mean over the seeds
    double low = 0, high = 0;  ///< 95 % interval; for one seed the highest rate borne and the lowest that was not
    std::vector<double> by_seed;
    std::vector<CapacityTrial> trials;  ///< of the first seed, by rate
    std::int64_t gpus = 0;              ///< that the replicas have
    std::uint64_t runs = 0;

    /// The last trial of the first seed within its limits. Precondition: the search has ended.
    [[nodiscard]] const CapacityTrial& best() const;
};

/// Throws ConfigError for scenarios that are not serving, have no limit or no rate to change, and for bad options.
void check_capacity(const Scenario& scenario, const CapacityOptions& options);

/// Searches. Throws as check_capacity, and InfeasibleError when the limits are not met at any rate (an idle system misses them).
[[nodiscard]] Capacity find_capacity(const Scenario& scenario, ModelCache& models, const CapacityOptions& options);

/// GPUs that the replicas of a scenario have.
[[nodiscard]] std::int64_t serving_gpus(const EngineSpec& engine);

}  // namespace orrery::inline planning
