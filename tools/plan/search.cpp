#include "tools/plan/search.hpp"

#include "sim/config/units.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "tools/driver/run.hpp"
#include "tools/plan/estimate.hpp"
#include "tools/plan/offload_space.hpp"
#include "tools/plan/plan_space.hpp"
#include "tools/sweep/worker_pool.hpp"
#include "workloads/training/features/compression.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/features/outer.hpp"
#include "workloads/training/features/sharding.hpp"
#include "workloads/training/features/signatures.hpp"
#include "workloads/training/features/zeroth_order.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

namespace orrery::plan {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kBatch = 64;        // candidates a request
constexpr std::size_t kMostOnFront = 30;  // plans of the estimated front that are simulated beside the best
constexpr std::size_t kMoved = 20;        // best simulated plans whose layers are moved between stages
constexpr int kMostMoves = 2000;          // layers moved in an estimate, a plan
constexpr double kWorthMoving = 1e-3;     // of the time
constexpr double kTimeoutSeconds = 600;
constexpr double kGibi = 1024.0 * 1024 * 1024;

Scenario scenario_with(const Scenario& base, std::int64_t nodes, const PlanSpec& plan) {
    Scenario scenario = base;
    scenario.cluster.nodes = nodes;
    scenario.as<TrainingKind>().plan = plan;
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
    PlanWorker(const Scenario& base, const PlanSpace& space, const DataDirectory& data, double headroom)
        : base_(base), space_(space), models_(data), headroom_(headroom), judged_(base) {}

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
            judged_.cluster.nodes = space_.nodes(i);
            judged_.as<TrainingKind>().plan = space_.plan(i);
            try {
                const Fabric& fabric = fabric_for(space_.nodes(i));
                if (devices_.empty()) {
                    devices_ = node_devices(judged_, models_);
                }
                const TrainingInput input = training_input(judged_, devices_, fabric, Placement(fabric));
                const std::optional<double> memory = memory_of_plan(judged_, input);
                if (!memory.has_value() || !fits_tiers(input)) {
                    ++do_not_fit;
                    continue;
                }
                const double bubble = figures_of(judged_.as<TrainingKind>().plan).bubble;
                feasible.push_back({i, estimator_.iteration(input, bubble, space_.family(i)).value(), *memory / kGibi});
            } catch (const Error&) {
                ++do_not_divide;
            }
        }
        return {{"feasible", feasible}, {"divide", do_not_divide}, {"fit", do_not_fit}};
    }

    // Layers go one by one to where the estimate gains most, while the plan fits. Answers how many each part has then; none where even
    // parts are best.
    Json move_layers(std::size_t index) {
        judged_.cluster.nodes = space_.nodes(index);
        judged_.as<TrainingKind>().plan = space_.plan(index);
        const Fabric& fabric = fabric_for(space_.nodes(index));
        if (devices_.empty()) {
            devices_ = node_devices(judged_, models_);
        }
        const double bubble = figures_of(judged_.as<TrainingKind>().plan).bubble;
        const auto seconds_of = [&](const std::vector<std::int64_t>& stages) -> std::optional<double> {
            judged_.as<TrainingKind>().plan.stages = stages;
            const TrainingInput input = training_input(judged_, devices_, fabric, Placement(fabric));
            if (!memory_of_plan(judged_, input).has_value()) {
                return std::nullopt;
            }
            return estimator_.iteration(input, bubble, space_.family(index)).value();
        };
        const std::vector<std::uint32_t> even =
            layers_of_parts(judged_.as<TrainingKind>().model, judged_.as<TrainingKind>().plan);
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
        const auto& training = scenario.as<TrainingKind>();
        double capacity = 0;
        for (std::int64_t stage = 0; stage < training.plan.pipeline; ++stage) {
            capacity = std::max(capacity, input.memory_of_stage(stage));
        }
        const double layers =
            std::ceil(static_cast<double>(training.model.layers) / static_cast<double>(training.plan.pipeline));
        const LayerMix fewest =
            mix_of(training.model, 0, std::max<std::int64_t>(0, static_cast<std::int64_t>(layers) - 1));
        const double least =
            memory_of(training.model, training.plan, training.software, fewest, false, false, 1).total();
        if (least > capacity) {
            return std::nullopt;
        }
        double most = 0;
        const std::vector<MemoryUse> uses =
            memory_by_stage(training.model, training.plan, training.software, figures_of(training.plan).held);
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
            const RunOutput out =
                run_scenario(scenario_with(base_, space_.nodes(index), space_.plan(index)), models_, {});
            return {{"seconds", out.summary.find("iteration_time_s")->value},
                    {"memory", out.summary.find("memory_per_gpu_gib")->value},
                    {"mfu", out.summary.find("mfu")->value},
                    {"tokens_per_s", out.summary.find("tokens_per_s")->value},
                    {"breakdown", out.summary.breakdown}};
        } catch (const InfeasibleError& error) {
            return {{"infeasible", error.what()}};
        } catch (const std::bad_alloc&) {
            return {{"infeasible", "needs more memory than a process of this search may take"}};
        }
    }

    const Scenario& base_;
    const PlanSpace& space_;
    ModelCache models_;
    double headroom_;
    Scenario judged_;                   ///< the base with one plan after another
    std::vector<GroupDevice> devices_;  ///< of its nodes
    Estimator estimator_;
    std::map<std::int64_t, std::unique_ptr<Fabric>> fabrics_;
    std::map<std::tuple<const PipelineSchedule*, std::uint32_t, std::uint32_t, std::uint32_t, VocabularyParallel>,
             ScheduleFigures>
        figures_;
};

// Where the time of a plan goes beyond that of the best one.
std::string compare(const PlanFigures& plan, const PlanFigures& best) {
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

std::string reason_of_best(const PlanFigures& best) {
    std::vector<std::pair<std::string, double>> parts = best.breakdown;
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string out;
    for (std::size_t i = 0; i < std::min<std::size_t>(parts.size(), 3); ++i) {
        out += fmt::format("{}{} {:.1f} %", out.empty() ? "" : ", ", parts[i].first,
                           100 * parts[i].second / best.iteration_s);
    }
    return out;
}

bool dominates(const PlanFigures& a, const PlanFigures& b, double time_a, double time_b) {
    return time_a <= time_b && a.memory_gib <= b.memory_gib && a.gpu_hours <= b.gpu_hours &&
           (time_a < time_b || a.memory_gib < b.memory_gib || a.gpu_hours < b.gpu_hours);
}

class PlanSearcher {
  public:
    PlanSearcher(const Scenario& scenario, const DataDirectory& data, const PlanOptions& options)
        : base_(scenario), data_(data), options_(options), space_(scenario, options.software) {}

    PlanSearch search() {
        const std::vector<std::int64_t> sizes =
            options_.nodes.empty() ? std::vector<std::int64_t>{base_.cluster.nodes} : options_.nodes;
        for (const std::int64_t nodes : sizes) {
            space_.list(nodes);
        }
        out_.listed = space_.size();
        PlanWorker worker(base_, space_, data_, options_.headroom);
        const Work work = [&](const std::string& request) { return worker.answer(request); };
        judge_all(work);
        if (rows_.empty()) {
            throw InfeasibleError(
                fmt::format("none of {} plans is feasible: {} do not divide, {} do not fit into {:.4g} % of the memory",
                            out_.listed, out_.do_not_divide, out_.do_not_fit, 100 * (1 - options_.headroom)),
                ErrorCode::limits_not_met);
        }
        simulate_best(work);
        move_layers(work);
        finish();
        return std::move(out_);
    }

  private:
    /// A feasible plan: millions of them are ranked by their figures alone.
    struct Row : PlanFigures {
        std::size_t place;  ///< in the space
    };

    void judge_all(const Work& work) {
        std::size_t at = 0;
        run_in_workers(
            options_.workers, kTimeoutSeconds, work,
            [&]() -> std::optional<WorkRequest> {
                if (at >= space_.size()) {
                    return std::nullopt;
                }
                const std::size_t from = at;
                at = std::min(space_.size(), at + kBatch);
                report(0.5 * static_cast<double>(from) / static_cast<double>(space_.size()));
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

    void add(std::size_t place, double seconds, double memory_gib) {
        Row row;
        row.place = place;
        row.estimate_s = row.iteration_s = seconds;
        row.memory_gib = memory_gib;
        row.gpu_hours = gpu_hours(row);
        rows_.push_back(std::move(row));
    }

    [[nodiscard]] double gpu_hours(const Row& row) const {
        const double tokens = static_cast<double>(base_.as<TrainingKind>().plan.global_batch) *
                              static_cast<double>(base_.as<TrainingKind>().model.sequence);
        const auto gpus = static_cast<double>(space_.nodes(row.place) * base_.cluster.node.gpus);
        return row.iteration_s * gpus / 3600 / tokens * 1e9;
    }

    // Simulated plans first, then by time, then by how they were listed, so that ties have one order.
    void sort() {
        const auto key = [](const Row& row) {
            return std::make_tuple(!row.simulated, row.iteration_s, row.memory_gib, row.place);
        };
        std::sort(rows_.begin(), rows_.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
    }

    void simulate_best(const Work& work) {
        std::vector<std::size_t> chosen;
        for (std::size_t i = 0; i < std::min(options_.simulate, rows_.size()); ++i) {
            chosen.push_back(i);
        }
        // The front of estimates: the best time for each amount of memory, so that the simulated front is whole.
        std::vector<std::size_t> front;
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            const bool dominated = std::any_of(front.begin(), front.end(), [&](std::size_t other) {
                return dominates(rows_[other], rows_[i], rows_[other].estimate_s, rows_[i].estimate_s);
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
        for (std::size_t i = 0; i < rows_.size() && rows_[i].simulated && asked.size() < kMoved; ++i) {
            const PlanSpec plan = space_.plan(rows_[i].place);
            if (plan.parts() > 1 && plan.recompute_layers == 0 && !base_.as<TrainingKind>().plan.has<DocumentsPlan>()) {
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
                return WorkRequest{i, Json{{"move", rows_[i].place}}.dump()};
            },
            [&](std::size_t i, const WorkReply& reply) -> std::optional<std::string> {
                stages[i] = answer_of(reply).get<std::vector<std::int64_t>>();
                return std::nullopt;
            });
        std::vector<std::size_t> moved;
        std::vector<double> even;  // s, of the plan that each was
        for (const auto& [i, layers] : stages) {
            if (!layers.empty()) {
                PlanSpec plan = space_.plan(rows_[i].place);
                plan.stages = layers;
                space_.add(space_.nodes(rows_[i].place), plan);
                Row row = rows_[i];
                row.place = space_.size() - 1;
                row.simulated = false;
                moved.push_back(rows_.size());
                even.push_back(row.iteration_s);
                rows_.push_back(std::move(row));
            }
        }
        const std::size_t first = rows_.size() - moved.size();
        simulate_each(work, moved);
        for (std::size_t i = rows_.size(); i-- > first;) {
            if (!rows_[i].simulated || rows_[i].iteration_s > even[i - first] * (1 - kWorthMoving)) {
                forget(i);
            }
        }
        out_.moved = rows_.size() - first;
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
                return WorkRequest{i, Json{{"simulate", rows_[i].place}}.dump()};
            },
            [&](std::size_t i, const WorkReply& reply) -> std::optional<std::string> {
                const Json answer = answer_of(reply);
                Row& row = rows_[i];
                if (answer.contains("infeasible")) {
                    refused.push_back(i);
                    return std::nullopt;
                }
                row.simulated = true;
                row.iteration_s = answer["seconds"];
                row.memory_gib = answer["memory"];
                row.mfu = answer["mfu"];
                row.tokens_per_s = answer["tokens_per_s"];
                if (options_.found && row.iteration_s < best_s_) {
                    options_.found(fmt::format("best so far {:.4g} s with {}", row.iteration_s,
                                               describe_plan(space_.plan(row.place))));
                }
                best_s_ = std::min(best_s_, row.iteration_s);
                row.gpu_hours = gpu_hours(row);
                row.breakdown = answer["breakdown"].get<std::vector<std::pair<std::string, double>>>();
                if (space_.plan(row.place).stages.empty()) {
                    out_.worst_error = std::max(out_.worst_error, std::abs(row.estimate_s / row.iteration_s - 1));
                }
                return std::nullopt;
            });
        return refused;
    }

    void forget(std::size_t i) { rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(i)); }

    void finish() {
        const auto simulated = std::find_if(rows_.begin(), rows_.end(), [](const Row& row) { return !row.simulated; });
        out_.ranked.reserve(rows_.size());
        for (auto row = rows_.begin(); row != rows_.end(); ++row) {
            RankedPlan& ranked = out_.ranked.emplace_back();
            static_cast<PlanFigures&>(ranked) = *row;
            ranked.nodes = space_.nodes(row->place);
            ranked.sized = !base_.cluster.mixed;
            ranked.plan = space_.plan(row->place);
            if (row < simulated) {
                ranked.reason = row == rows_.begin() ? reason_of_best(*row) : compare(*row, rows_.front());
                ranked.pareto = std::none_of(rows_.begin(), simulated, [&](const Row& other) {
                    return dominates(other, *row, other.iteration_s, row->iteration_s);
                });
            }
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
    double best_s_ = std::numeric_limits<double>::infinity();  ///< of the plans simulated so far
    PlanSpace space_;                                          ///< and those of it with layers moved
    PlanSearch out_;
    std::vector<Row> rows_;  ///< feasible plans, the best first
};

}  // namespace

PlanSearch search_plans(const Scenario& scenario, const DataDirectory& data, const PlanOptions& options) {
    if (scenario.find<TrainingKind>() == nullptr) {
        throw ConfigError("plans are searched for training and serving scenarios; this one is of another kind");
    }
    const auto& training = scenario.as<TrainingKind>();
    if (!training.plan.stages.empty()) {
        throw ConfigError({training.plan_mark.error("'plan' searches stages itself: leave 'stages' out")});
    }
    if (training.plan.has<ShardingPlan>() || training.plan.has<OuterPlan>() || training.plan.has<CompressionPlan>()) {
        throw ConfigError({training.plan_mark.error(
            "'plan' searches degrees, schedules and ZeRO stages: leave 'sharding', 'outer' and 'compression' out")});
    }
    if (training.plan.has<SignaturePlan>()) {
        throw ConfigError({training.plan_mark.error(
            "'plan' searches degrees, which signatures are another notation of: leave 'signatures' out")});
    }
    if (training.plan.has<ZerothOrderPlan>()) {
        throw ConfigError(
            {training.plan_mark.error("'plan' searches passes forward and backward: leave 'zeroth_order' out")});
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
    plain.as<TrainingKind>().faults = FaultsSpec();  // plans are ranked by their iteration without faults
    PlanSearch out = PlanSearcher(plain, data, options).search();
    if (training.faults.campaign) {
        Scenario best = scenario;
        best.cluster.nodes = out.ranked.front().nodes;
        best.as<TrainingKind>().plan = out.ranked.front().plan;
        ModelCache models(data);
        out.recovery = search_recovery(best, models);
    }
    return out;
}

}  // namespace orrery::plan
