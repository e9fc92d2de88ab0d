#pragma once
// The best way to serve: how the GPUs of a cluster are split into replicas, so that they bear the highest rate within limits.
//
// The space: tensor and pipeline degrees of mixed replicas with budgets of tokens per iteration; and prefill beside decode replicas, each
// with degrees of their own, in every ratio that leaves less than one replica of GPUs idle. Everything else is as in the scenario.
// All plans are judged on a quarter of the load; the best are searched again on all of it.

#include "tools/plan/capacity.hpp"
#include "workloads/serving/spec.hpp"

namespace orrery::plan {

struct ServingPlanOptions {
    CapacityOptions capacity;   ///< `seeds` and `found` are not used
    std::size_t simulate = 20;  ///< best plans that are judged on the whole load
    unsigned workers = 1;
    std::function<void(double)> progress;
    std::function<void(const std::string&)> found;  ///< called with a line about the best plan so far
};

struct RankedServing {
    EngineSpec engine;
    std::int64_t gpus = 0;
    bool whole_load = false;  ///< judged on all requests
    double rate = 0;          ///< requests/s within the limits
    double rate_per_gpu = 0;
    double output_tokens = 0;    ///< per second at that rate
    double ttft = 0, tbt = 0;    ///< s there, at the percentile or the 99th
    double usd_per_million = 0;  ///< output tokens there; 0: no price
    std::string limit;           ///< what gives out first
    bool pareto = false;         ///< no plan bears a higher rate with less time between tokens
};

struct ServingSearch {
    std::uint64_t listed = 0;
    std::uint64_t do_not_divide = 0;
    std::uint64_t do_not_fit = 0;
    std::uint64_t miss_limits = 0;      ///< at any rate
    std::vector<RankedServing> ranked;  ///< on the whole load by rate per GPU, then the others
};

/// Throws ConfigError and InfeasibleError as find_capacity does, and InfeasibleError when no plan is feasible.
[[nodiscard]] ServingSearch search_serving(const Scenario& scenario, const DataDirectory& data,
                                           const ServingPlanOptions& options);

/// "4 replicas of tensor 2, 2,048 tokens per iteration", "3 prefill of tensor 4 and 1 decode of tensor 4".
[[nodiscard]] std::string describe_serving(const EngineSpec& engine);
/// Assignments that turn the scenario into this plan.
[[nodiscard]] std::vector<std::string> assignments_of(const EngineSpec& engine);

}  // namespace orrery::plan
