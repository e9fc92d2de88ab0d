#include "tools/plan/search.hpp"

#include "sim/config/units.hpp"
#include "tools/driver/kind.hpp"
#include "tools/plan/estimate.hpp"
#include "tools/plan/offload_space.hpp"
#include "tools/plan/plan_space.hpp"
#include "tools/sweep/worker_pool.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

namespace orrery::inline planning {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kBatch = 64;        // candidates a request
constexpr std::size_t kMostOnFront = 30;  // plans of the estimated front that are simulated beside the best
constexpr std::size_t kMoved = 20;        // best simulated plans whose layers are moved between stages
constexpr int kMostMoves = 2000;          // layers moved in an estimate, a plan
constexpr double kWorthMoving = 1e-3;     // of the time
constexpr double kTimeoutSeconds = 600;
constexpr double kGibi = 1024.0 * 1024 * 1024;

Scenario scenario_with(const Scenario& base, const Candidate& candidate) {
    Scenario scenario = base;
    scenario.cluster.nodes = candidate.nodes;
    scenario.plan = candidate.plan;
    return scenario;
}

/// What a schedule says of a shape.
struct ScheduleFigures {
    bool known = false;
    double bubble = 0;
    std::vector<double> held;
};

// What workers do: judge a batch of candidates, or simulate one.
class PlanWorker {
  public:
    PlanWorker(const Scenario& base, const std::vector<Candidate>& candidates, const DataDirectory& data,
               double headroom)
        : base_(base), candidates_(candidates), models_(data), headroom_(headroom), judged_(base) {}

    std::string answer(const std::string& request) {
        const Json asked = Json::parse(request);
        return (asked.contains("simulate") ? simulate_one(asked["simulate"])
                : asked.contains("move")   ? move_layers(asked["move"])
                                           : judge(asked["from"], asked["to"]))
            .dump();
    }

  private:
    const Fabric& fabric_for(std::int64_t nodes) {
        std::unique_ptr<Fabric>& slot = fabrics_[nodes];
        if (!slot) {
            ClusterSpec cluster = base_.cluster;
            cluster.nodes = nodes;
            FabricShape shape = shape_of(cluster, base_.cluster_mark);
            shape.hash_salt = hash_salt(static_cast<std::uint64_t>(base_.seed));
            slot = std::make_unique<Fabric>(shape);
        }
        return *slot;
    }

    Json judge(std::size_t from, std::size_t to) {
        Json feasible = Json::array();
        std::uint64_t do_not_divide = 0;
        std::uint64_t do_not_fit = 0;
        for (std::size_t i = from; i < to; ++i) {
            judged_.cluster.nodes = candidates_[i].nodes;
            judged_.plan = candidates_[i].plan;
            try {
                const Fabric& fabric = fabric_for(candidates_[i].nodes);
                if (devices_.empty()) {
                    devices_ = node_devices(judged_, models_);
                }
                const TrainingInput input = training_input(judged_, devices_, fabric, Placement(fabric));
                const std::optional<double> memory = memory_of_plan(judged_, input);
                if (!memory.has_value() || !fits_tiers(input)) {
                    ++do_not_fit;
                    continue;
                }
                feasible.push_back(
                    {i, estimate_iteration(input, figures_of(judged_.plan).bubble).value(), *memory / kGibi});
            } catch (const Error&) {
                ++do_not_divide;
            }
        }
        return {{"feasible", feasible}, {"divide", do_not_divide}, {"fit", do_not_fit}};
    }

    // Layers go one by one to where the estimate gains most, while the plan fits. Answers how many each part has then; none where even
    // parts are best.
    Json move_layers(std::size_t index) {
        judged_.cluster.nodes = candidates_[index].nodes;
        judged_.plan = candidates_[index].plan;
        const Fabric& fabric = fabric_for(candidates_[index].nodes);
        if (devices_.empty()) {
            devices_ = node_devices(judged_, models_);
        }
        const double bubble = figures_of(judged_.plan).bubble;
        const auto seconds_of = [&](const std::vector<std::int64_t>& stages) -> std::optional<double> {
            judged_.plan.stages = stages;
            const TrainingInput input = training_input(judged_, devices_, fabric, Placement(fabric));
            if (!memory_of_plan(judged_, input).has_value()) {
                return std::nullopt;
            }
            return estimate_iteration(input, bubble).value();
        };
        const std::vector<std::uint32_t> even = layers_of_parts(judged_.model, judged_.plan);
        std::vector<std::int64_t> best(even.begin(), even.end());
        const std::vector<std::int64_t> start = best;
        double least = seconds_of(best).value_or(0);
        bool gains = least > 0;
        for (int tried = 0; gains && tried < kMostMoves;) {
            gains = false;
            const std::vector<std::int64_t> now = best;
            for (std::size_t from = 0; from < now.size(); ++from) {
                for (std::size_t to = 0; to < now.size() && now[from] > 1; ++to) {
                    // Parts with as many layers beside the ends are alike: the first of them stands for all, unless nodes differ.
                    const bool alike = !base_.cluster.mixed && to > 1 && to + 1 < now.size() && now[to] == now[to - 1];
                    if (from == to || alike) {
                        continue;
                    }
                    std::vector<std::int64_t> moved = now;
                    --moved[from];
                    ++moved[to];
                    ++tried;
                    const std::optional<double> seconds = seconds_of(moved);
                    if (seconds.has_value() && *seconds < least * (1 - 1e-9)) {
                        least = *seconds;
                        best = std::move(moved);
                        gains = true;
                    }
                }
            }
        }
        return best == start ? Json::array() : Json(best);
    }

    // Many plans have pipelines of one shape, whose passes are long lists.
    const ScheduleFigures& figures_of(const PlanSpec& plan) {
        const PipelineShape shape = plan.shape();
        ScheduleFigures& out =
            figures_[{plan.schedule, shape.stages, shape.chunks, shape.micro_batches, shape.vocabulary}];
        if (!out.known) {
            out.known = true;
            out.bubble = shape.stages > 1 ? plan.schedule->bubble(shape) : 0;
            if (plan.schedule->search == nullptr) {  // else as its limits say
                const std::vector<std::uint32_t> held = plan.schedule->in_flight(shape);
                out.held.assign(held.begin(), held.end());
            }
        }
        return out;
    }

    // Of the fullest stage, where each fits into the memory of the devices that hold it less the headroom. Judged by the fewest
    // layers first, because schedules of long pipelines are long lists.
    [[nodiscard]] std::optional<double> memory_of_plan(const Scenario& scenario, const TrainingInput& input) {
        double capacity = 0;
        for (std::int64_t stage = 0; stage < scenario.plan.pipeline; ++stage) {
            capacity = std::max(capacity, input.memory_of_stage(stage));
        }
        const double layers =
            std::ceil(static_cast<double>(scenario.model.layers) / static_cast<double>(scenario.plan.pipeline));
        const LayerMix fewest =
            mix_of(scenario.model, 0, std::max<std::int64_t>(0, static_cast<std::int64_t>(layers) - 1));
        const double least =
            memory_of(scenario.model, scenario.plan, scenario.software, fewest, false, false, 1).total();
        if (least > capacity) {
            return std::nullopt;
        }
        double most = 0;
        const std::vector<MemoryUse> uses =
            memory_by_stage(scenario.model, scenario.plan, scenario.software, figures_of(scenario.plan).held);
        for (std::size_t stage = 0; stage < uses.size(); ++stage) {
            most = std::max(most, uses[stage].total());
            if (uses[stage].total() > (1 - headroom_) * input.memory_of_stage(static_cast<std::int64_t>(stage))) {
                return std::nullopt;
            }
        }
        return most;
    }

    Json simulate_one(std::size_t index) {
        try {
            const RunOutput out = run(scenario_with(base_, candidates_[index]), models_, {});
            return {{"seconds", out.summary.find("iteration_time_s")->value},
                    {"memory", out.summary.find("memory_per_gpu_gib")->value},
                    {"breakdown", out.summary.breakdown}};
        } catch (const InfeasibleError& error) {
            return {{"infeasible", error.what()}};
        } catch (const std::bad_alloc&) {
            return {{"infeasible", "needs more memory than a process of this search may take"}};
        }
    }

    const Scenario& base_;
    const std::vector<Candidate>& candidates_;
    ModelCache models_;
    double headroom_;
    Scenario judged_;                   ///< the base with one plan after another
    std::vector<GroupDevice> devices_;  ///< of its nodes
    std::map<std::int64_t, std::unique_ptr<Fabric>> fabrics_;
    std::map<std::tuple<const PipelineSchedule*, std::uint32_t, std::uint32_t, std::uint32_t, VocabularyParallel>,
             ScheduleFigures>
        figures_;
};

// Where the time of a plan goes beyond that of the best one.
std::string compare(const RankedPlan& plan, const RankedPlan& best) {
    std::map<std::string, double> difference;
    for (const auto& [name, seconds] : plan.breakdown) {
        difference[name] += seconds;
    }
    for (const auto& [name, seconds] : best.breakdown) {
        difference[name] -= seconds;
    }
    std::vector<std::pair<std::string, double>> parts(difference.begin(), difference.end());
    std::stable_sort(parts.begin(), parts.end(),
                     [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
    std::string out;
    for (std::size_t i = 0; i < std::min<std::size_t>(parts.size(), 3); ++i) {
        if (std::abs(parts[i].second) > 0.002 * best.iteration_s) {
            out += fmt::format("{}{} {:+.3g} s", out.empty() ? "" : ", ", parts[i].first, parts[i].second);
        }
    }
    return out.empty() ? "as the best plan" : out;
}

std::string reason_of_best(const RankedPlan& best) {
    std::vector<std::pair<std::string, double>> parts = best.breakdown;
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string out;
    for (std::size_t i = 0; i < std::min<std::size_t>(parts.size(), 3); ++i) {
        out += fmt::format("{}{} {:.1f} %", out.empty() ? "" : ", ", parts[i].first,
                           100 * parts[i].second / best.iteration_s);
    }
    return out;
}

bool dominates(const RankedPlan& a, const RankedPlan& b, double time_a, double time_b) {
    return time_a <= time_b && a.memory_gib <= b.memory_gib && a.gpu_hours <= b.gpu_hours &&
           (time_a < time_b || a.memory_gib < b.memory_gib || a.gpu_hours < b.gpu_hours);
}

class PlanSearcher {
  public:
    PlanSearcher(const Scenario& scenario, const DataDirectory& data, const PlanOptions& options)
        : base_(scenario), data_(data), options_(options) {}

    PlanSearch search() {
        const std::vector<std::int64_t> sizes =
            options_.nodes.empty() ? std::vector<std::int64_t>{base_.cluster.nodes} : options_.nodes;
        for (const std::int64_t nodes : sizes) {
            list_plans(base_, nodes, candidates_);
        }
        out_.listed = candidates_.size();
        PlanWorker worker(base_, candidates_, data_, options_.headroom);
        const Work work = [&](const std::string& request) { return worker.answer(request); };
        judge_all(work);
        if (out_.ranked.empty()) {
            throw InfeasibleError(
                fmt::format("none of {} plans is feasible: {} do not divide, {} do not fit into {:.4g} % of the memory",
                            out_.listed, out_.do_not_divide, out_.do_not_fit, 100 * (1 - options_.headroom)));
        }
        simulate_best(work);
        move_layers(work);
        finish();
        return std::move(out_);
    }

  private:
    void judge_all(const Work& work) {
        std::size_t at = 0;
        run_in_workers(
            options_.workers, kTimeoutSeconds, work,
            [&]() -> std::optional<WorkRequest> {
                if (at >= candidates_.size()) {
                    return std::nullopt;
                }
                const std::size_t from = at;
                at = std::min(candidates_.size(), at + kBatch);
                report(0.5 * static_cast<double>(from) / static_cast<double>(candidates_.size()));
                return WorkRequest{from, Json{{"from", from}, {"to", at}}.dump()};
            },
            [&](std::size_t, const WorkReply& reply) -> std::optional<std::string> {
                const Json answer = answer_of(reply);
                out_.do_not_divide += answer["divide"].get<std::uint64_t>();
                out_.do_not_fit += answer["fit"].get<std::uint64_t>();
                for (const Json& row : answer["feasible"]) {
                    add(row[0], row[1], row[2]);
                }
                return std::nullopt;
            });
        sort();
    }

    void add(std::size_t index, double seconds, double memory_gib) {
        RankedPlan plan;
        plan.nodes = candidates_[index].nodes;
        plan.sized = !base_.cluster.mixed;
        plan.plan = candidates_[index].plan;
        plan.estimate_s = plan.iteration_s = seconds;
        plan.memory_gib = memory_gib;
        plan.gpu_hours = gpu_hours(plan);
        out_.ranked.push_back(std::move(plan));
        index_.push_back(index);
    }

    [[nodiscard]] double gpu_hours(const RankedPlan& plan) const {
        const double tokens = static_cast<double>(base_.plan.global_batch) * static_cast<double>(base_.model.sequence);
        return plan.iteration_s * static_cast<double>(plan.nodes * base_.cluster.node.gpus) / 3600 / tokens * 1e9;
    }

    // Simulated plans first, then by time, then by how they were listed, so that ties have one order.
    void sort() {
        std::vector<std::size_t> order(out_.ranked.size());
        for (std::size_t i = 0; i < order.size(); ++i) {
            order[i] = i;
        }
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            const RankedPlan& left = out_.ranked[a];
            const RankedPlan& right = out_.ranked[b];
            return std::make_tuple(!left.simulated, left.iteration_s, left.memory_gib, index_[a]) <
                   std::make_tuple(!right.simulated, right.iteration_s, right.memory_gib, index_[b]);
        });
        std::vector<RankedPlan> ranked;
        std::vector<std::size_t> index;
        for (const std::size_t i : order) {
            ranked.push_back(std::move(out_.ranked[i]));
            index.push_back(index_[i]);
        }
        out_.ranked = std::move(ranked);
        index_ = std::move(index);
    }

    void simulate_best(const Work& work) {
        std::vector<std::size_t> chosen;
        for (std::size_t i = 0; i < std::min(options_.simulate, out_.ranked.size()); ++i) {
            chosen.push_back(i);
        }
        // The front of estimates: the best time for each amount of memory, so that the simulated front is whole.
        std::vector<std::size_t> front;
        for (std::size_t i = 0; i < out_.ranked.size(); ++i) {
            const RankedPlan& plan = out_.ranked[i];
            const bool dominated = std::any_of(front.begin(), front.end(), [&](std::size_t other) {
                return dominates(out_.ranked[other], plan, out_.ranked[other].estimate_s, plan.estimate_s);
            });
            if (!dominated) {
                front.push_back(i);
            }
        }
        const std::size_t step = front.size() / kMostOnFront + 1;
        for (std::size_t i = 0; i < front.size(); i += step) {
            if (std::find(chosen.begin(), chosen.end(), front[i]) == chosen.end()) {
                chosen.push_back(front[i]);
            }
        }
        std::vector<std::size_t> refused = simulate_each(work, chosen);
        std::sort(refused.rbegin(), refused.rend());
        for (const std::size_t i : refused) {
            forget(i);
        }
        sort();
    }

    // Of the best plans, the same with layers moved between stages, where the estimate gains by it. They are kept where they are faster.
    void move_layers(const Work& work) {
        std::vector<std::size_t> asked;
        for (std::size_t i = 0; i < out_.ranked.size() && out_.ranked[i].simulated && asked.size() < kMoved; ++i) {
            const PlanSpec& plan = out_.ranked[i].plan;
            if (plan.parts() > 1 && plan.recompute_layers == 0 && !base_.plan.documents.given) {
                asked.push_back(i);
            }
        }
        std::map<std::size_t, std::vector<std::int64_t>>
            stages;  // by plan, in the order of ranks for any number of workers
        std::size_t at = 0;
        run_in_workers(
            options_.workers, kTimeoutSeconds, work,
            [&]() -> std::optional<WorkRequest> {
                if (at >= asked.size()) {
                    return std::nullopt;
                }
                const std::size_t i = asked[at++];
                return WorkRequest{i, Json{{"move", index_[i]}}.dump()};
            },
            [&](std::size_t i, const WorkReply& reply) -> std::optional<std::string> {
                stages[i] = answer_of(reply).get<std::vector<std::int64_t>>();
                return std::nullopt;
            });
        std::vector<std::size_t> moved;
        std::vector<double> even;  // s, of the plan that each was
        for (const auto& [i, layers] : stages) {
            if (!layers.empty()) {
                RankedPlan plan = out_.ranked[i];
                plan.plan.stages = layers;
                plan.plan.stages_given = true;
                plan.simulated = false;
                candidates_.push_back({plan.nodes, plan.plan});
                moved.push_back(out_.ranked.size());
                even.push_back(plan.iteration_s);
                out_.ranked.push_back(std::move(plan));
                index_.push_back(candidates_.size() - 1);
            }
        }
        const std::size_t first = out_.ranked.size() - moved.size();
        simulate_each(work, moved);
        for (std::size_t i = out_.ranked.size(); i-- > first;) {
            if (!out_.ranked[i].simulated || out_.ranked[i].iteration_s > even[i - first] * (1 - kWorthMoving)) {
                forget(i);
            }
        }
        out_.moved = out_.ranked.size() - first;
        sort();
    }

    // Returns those that are not feasible.
    std::vector<std::size_t> simulate_each(const Work& work, const std::vector<std::size_t>& chosen) {
        std::size_t at = 0;
        std::vector<std::size_t> refused;
        run_in_workers(
            options_.workers, kTimeoutSeconds, work,
            [&]() -> std::optional<WorkRequest> {
                if (at >= chosen.size()) {
                    return std::nullopt;
                }
                report(0.5 + 0.5 * static_cast<double>(at) / static_cast<double>(chosen.size()));
                const std::size_t i = chosen[at++];
                return WorkRequest{i, Json{{"simulate", index_[i]}}.dump()};
            },
            [&](std::size_t i, const WorkReply& reply) -> std::optional<std::string> {
                const Json answer = answer_of(reply);
                RankedPlan& plan = out_.ranked[i];
                if (answer.contains("infeasible")) {
                    refused.push_back(i);
                    return std::nullopt;
                }
                plan.simulated = true;
                plan.iteration_s = answer["seconds"];
                plan.memory_gib = answer["memory"];
                plan.gpu_hours = gpu_hours(plan);
                plan.breakdown = answer["breakdown"].get<std::vector<std::pair<std::string, double>>>();
                if (plan.plan.stages.empty()) {
                    out_.worst_error = std::max(out_.worst_error, std::abs(plan.estimate_s / plan.iteration_s - 1));
                }
                return std::nullopt;
            });
        return refused;
    }

    void forget(std::size_t i) {
        out_.ranked.erase(out_.ranked.begin() + static_cast<std::ptrdiff_t>(i));
        index_.erase(index_.begin() + static_cast<std::ptrdiff_t>(i));
    }

    void finish() {
        const RankedPlan best = out_.ranked.front();
        for (RankedPlan& plan : out_.ranked) {
            if (!plan.simulated) {
                break;
            }
            plan.reason = &plan == &out_.ranked.front() ? reason_of_best(plan) : compare(plan, best);
            plan.pareto = std::none_of(out_.ranked.begin(), out_.ranked.end(), [&](const RankedPlan& other) {
                return other.simulated && dominates(other, plan, other.iteration_s, plan.iteration_s);
            });
        }
    }

    static Json answer_of(const WorkReply& reply) {
        if (reply.end != WorkReply::End::answered) {
            throw InternalError("a worker of the plan search " + reply.text);
        }
        return Json::parse(reply.text);
    }

    void report(double fraction) const {
        if (options_.progress) {
            options_.progress(fraction);
        }
    }

    const Scenario& base_;
    const DataDirectory& data_;
    const PlanOptions& options_;
    std::vector<Candidate> candidates_;
    PlanSearch out_;
    std::vector<std::size_t> index_;  ///< of each ranked plan among the candidates
};

}  // namespace

PlanSearch search_plans(const Scenario& scenario, const DataDirectory& data, const PlanOptions& options) {
    if (!row_of(scenario.kind).plans) {
        throw ConfigError("plans are searched for training scenarios; this one is of another kind");
    }
    if (!scenario.plan.stages.empty()) {
        throw ConfigError({scenario.plan_mark.error("'plan' searches stages itself: leave 'stages' out")});
    }
    if (scenario.plan.sharding.given || scenario.plan.outer.given || scenario.plan.compression.given) {
        throw ConfigError({scenario.plan_mark.error(
            "'plan' searches degrees, schedules and ZeRO stages: leave 'sharding', 'outer' and 'compression' out")});
    }
    if (scenario.plan.signatures.given) {
        throw ConfigError({scenario.plan_mark.error(
            "'plan' searches degrees, which signatures are another notation of: leave 'signatures' out")});
    }
    if (scenario.plan.zeroth_order.given) {
        throw ConfigError(
            {scenario.plan_mark.error("'plan' searches passes forward and backward: leave 'zeroth_order' out")});
    }
    if (scenario.cluster.nodes == 0) {
        throw ConfigError({scenario.cluster_mark.error("training needs 'nodes' with GPUs, not bare hosts")});
    }
    if (scenario.cluster.mixed && !options.nodes.empty()) {
        throw ConfigError(
            {scenario.cluster_mark.error("sizes of a cluster of 'groups' are those of its groups: leave "
                                         "--nodes out")});
    }
    Scenario plain = scenario;
    plain.faults = FaultsSpec();  // plans are ranked by their iteration without faults
    PlanSearch out = PlanSearcher(plain, data, options).search();
    if (scenario.faults.campaign) {
        Scenario best = scenario;
        best.cluster.nodes = out.ranked.front().nodes;
        best.plan = out.ranked.front().plan;
        ModelCache models(data);
        out.recovery = search_recovery(best, models);
    }
    return out;
}

}  // namespace orrery::inline planning
