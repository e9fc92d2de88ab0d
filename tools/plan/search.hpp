#pragma once
// The best parallel plan of a training scenario: the whole space is listed, what cannot be is dropped by arithmetic,
// the rest is ranked by an estimate, and the best are simulated in full.
//
// The space: tensor, context, pipeline and data degrees that fill the cluster, micro-batch sizes, chunks a stage,
// recomputation, ZeRO stages and sequence parallelism, for each schedule marked for it and the scenario's own; the mapping of experts
// (expert_space.hpp); for a plan that offloads, where each thing lies (offload_space.hpp); for documents, who computes them. On groups of
// unlike nodes, and where one NVLink fabric joins several nodes, also which stages or replicas are on which of them (`plan.groups`,
// `plan.spread`), unless the scenario says it. Of the best plans, layers are moved between stages (`plan.stages`) where that gains. Everything else (model, software, kernels, overlaps, batch) is
// as in the scenario.

#include "tools/plan/plan_software.hpp"
#include "tools/plan/recovery_search.hpp"
#include "workloads/training/plan/spec.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::plan {

struct PlanOptions {
    std::size_t simulate = 50;  ///< best plans by estimate that are simulated
    unsigned workers = 1;
    double headroom = 0.05;                  ///< share of a GPU's memory that a plan leaves free
    std::vector<std::int64_t> nodes;         ///< cluster sizes to search; empty: the scenario's
    const PlanSoftware* software = nullptr;  ///< whose plans to try; null: all
    std::function<void(double)> progress;
    std::function<void(const std::string&)> found;  ///< called with a line about the best plan so far
};

/// What a plan takes.
struct PlanFigures {
    double estimate_s = 0;
    double memory_gib = 0;  ///< a GPU, of the fullest stage
    bool simulated = false;
    double iteration_s = 0;                                 ///< simulated; else the estimate
    double mfu = 0;                                         ///< simulated
    double tokens_per_s = 0;                                ///< simulated
    double gpu_hours = 0;                                   ///< per 10^9 tokens
    std::vector<std::pair<std::string, double>> breakdown;  ///< s, of simulated plans
};

struct RankedPlan : PlanFigures {
    std::int64_t nodes = 0;
    bool sized = true;  ///< false: of a cluster of groups, whose numbers of nodes stay
    PlanSpec plan;
    std::string reason;   ///< against the best plan
    bool pareto = false;  ///< no simulated plan is faster with as little memory and as few GPU hours
};

struct PlanSearch {
    std::uint64_t listed = 0;  ///< combinations
    std::uint64_t do_not_divide = 0;
    std::uint64_t do_not_fit = 0;          ///< into memory less the headroom
    std::uint64_t moved = 0;               ///< ranked once more, faster with layers moved between stages
    std::vector<RankedPlan> ranked;        ///< feasible ones: simulated by time, then the others by estimate
    std::vector<RecoveryChoice> recovery;  ///< of the best plan, where the scenario has a campaign; best first
    double worst_error = 0;  ///< largest relative difference of estimate and simulation among the simulated
};

/// Throws ConfigError for scenarios that are not training, InfeasibleError when no plan is feasible.
[[nodiscard]] PlanSearch search_plans(const Scenario& scenario, const DataDirectory& data, const PlanOptions& options);

/// "tensor 8, pipeline 8, data 16, micro-batch 2, 6 chunks, selective recomputation, ZeRO 1".
[[nodiscard]] std::string describe_plan(const PlanSpec& plan);
/// Assignments that turn the scenario into this plan: "plan.tensor=8"...
[[nodiscard]] std::vector<std::string> assignments_of(const RankedPlan& plan);

}  // namespace orrery::plan
