#include "tools/plan/serving_search.hpp"

#include "tools/driver/kinds/serving.hpp"
#include "tools/sweep/worker_pool.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace orrery::plan {

namespace {

using Json = nlohmann::json;

constexpr double kServingTimeout = 600;
constexpr std::int64_t kBudgets[] = {512, 2048, 8192};
constexpr std::int64_t kMostStages = 8;
constexpr std::int64_t kFewestRequests = 500;  // of the reduced load
constexpr std::int64_t kShare = 4;             // of the load that all plans are judged on

struct Degrees {
    std::int64_t tensor, pipeline;
    [[nodiscard]] std::int64_t gpus() const { return tensor * pipeline; }
};

// Tensor degrees within a node, pipelines across them.
std::vector<Degrees> degrees_of(const Scenario& scenario, std::int64_t gpus) {
    std::vector<Degrees> out;
    for (std::int64_t pipeline = 1; pipeline <= std::min(kMostStages, scenario.as<ServingKind>().model.layers);
         pipeline *= 2) {
        for (std::int64_t tensor = 1; tensor <= scenario.cluster.node.gpus; tensor *= 2) {
            if (tensor * pipeline <= gpus) {
                out.push_back({tensor, pipeline});
            }
        }
    }
    return out;
}

void set(PhaseSpec& phase, const Degrees& degrees, std::int64_t replicas) {
    phase.tensor = degrees.tensor;
    phase.pipeline = degrees.pipeline;
    phase.replicas = replicas;
}

std::vector<EngineSpec> list_plans(const Scenario& scenario) {
    const auto& serving = scenario.as<ServingKind>();
    const std::int64_t gpus = scenario.cluster.nodes * scenario.cluster.node.gpus;
    const std::vector<Degrees> all = degrees_of(scenario, gpus);
    std::vector<EngineSpec> out;
    for (const Degrees& degrees : all) {
        for (const std::int64_t budget : kBudgets) {
            EngineSpec engine = serving.engine;
            engine.split = engine.decodes = false;
            set(engine.mixed, degrees, gpus / degrees.gpus());
            engine.mixed.scheduler.token_budget = budget;
            out.push_back(engine);
        }
    }
    for (const Degrees& prefill : all) {
        for (const Degrees& decode : all) {
            for (std::int64_t count = 1; count * prefill.gpus() + decode.gpus() <= gpus; ++count) {
                EngineSpec engine = serving.engine;
                engine.split = engine.decodes = true;
                if (!serving.engine.split) {
                    engine.transfer = Transfer::layers;
                }
                set(engine.prefill, prefill, count);
                set(engine.decode, decode, (gpus - count * prefill.gpus()) / decode.gpus());
                // One more prefill replica in the GPUs left idle is another entry of this list.
                if (gpus - serving_gpus(engine) < prefill.gpus()) {
                    out.push_back(engine);
                }
            }
        }
    }
    return out;
}

class ServingWorker {
  public:
    ServingWorker(const Scenario& base, const std::vector<EngineSpec>& plans, const DataDirectory& data,
                  const CapacityOptions& options)
        : base_(base), plans_(plans), models_(data), options_(options) {
        options_.seeds = 1;
        options_.requests = 6400;  // at each rate, of a load without a count: plans differ by more than such runs do
        options_.found = nullptr;
    }

    std::string answer(const std::string& request) {
        const Json asked = Json::parse(request);
        Scenario scenario = base_;
        auto& serving = scenario.as<ServingKind>();
        serving.engine = plans_[asked["plan"]];
        if (!asked["whole"].get<bool>()) {
            const std::int64_t count = serving.requests.count > 0 ? serving.requests.count : 1000;
            serving.requests.count = std::min(count, std::max(kFewestRequests, count / kShare));
        }
        if (serving.requests.trace.empty() && asked.contains("near")) {
            serving.requests.rate = asked["near"];
        }
        try {
            const Capacity capacity = find_capacity(scenario, models_, options_);
            const CapacityTrial& best = capacity.best();
            const auto above = std::find_if(capacity.trials.begin(), capacity.trials.end(),
                                            [](const CapacityTrial& trial) { return !trial.within; });
            return Json{{"rate", capacity.rate},
                        {"tokens", best.output_tokens},
                        {"ttft", best.ttft},
                        {"tbt", best.tbt},
                        {"limit", above == capacity.trials.end() ? "" : above->limit}}
                .dump();
        } catch (const InfeasibleError& error) {
            const bool limits = error.code() == ErrorCode::limits_not_met;
            const bool memory = error.code() == ErrorCode::out_of_memory;
            return Json{{"infeasible", limits ? "limits" : memory ? "memory" : "divide"}, {"why", error.what()}}.dump();
        }
    }

  private:
    const Scenario& base_;
    const std::vector<EngineSpec>& plans_;
    ModelCache models_;
    CapacityOptions options_;
};

bool dominates(const RankedServing& a, const RankedServing& b) {
    return a.rate_per_gpu >= b.rate_per_gpu && a.tbt <= b.tbt && (a.rate_per_gpu > b.rate_per_gpu || a.tbt < b.tbt);
}

class ServingSearcher {
  public:
    ServingSearcher(const Scenario& base, const DataDirectory& data, const ServingPlanOptions& options)
        : base_(base), data_(data), options_(options), plans_(list_plans(base)) {}

    ServingSearch search() {
        out_.listed = plans_.size();
        std::vector<std::size_t> all(plans_.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i] = i;
        }
        judge(all, false);
        if (out_.ranked.empty()) {
            throw InfeasibleError(
                fmt::format("none of {} plans is feasible: {} do not divide, {} do not fit into memory, {} miss "
                            "the limits at any rate",
                            out_.listed, out_.do_not_divide, out_.do_not_fit, out_.miss_limits),
                ErrorCode::limits_not_met);
        }
        sort();
        std::vector<std::size_t> best(
            index_.begin(), index_.begin() + static_cast<std::ptrdiff_t>(std::min(options_.simulate, index_.size())));
        judge(best, true);
        sort();
        for (RankedServing& plan : out_.ranked) {
            plan.pareto = plan.whole_load &&
                          std::none_of(out_.ranked.begin(), out_.ranked.end(), [&](const RankedServing& other) {
                              return other.whole_load && dominates(other, plan);
                          });
        }
        return std::move(out_);
    }

  private:
    void judge(const std::vector<std::size_t>& which, bool whole) {
        ServingWorker worker(base_, plans_, data_, options_.capacity);
        std::size_t at = 0;
        std::size_t done = 0;
        run_in_workers(
            options_.workers, kServingTimeout, [&](const std::string& request) { return worker.answer(request); },
            [&]() -> std::optional<WorkRequest> {
                if (at == which.size()) {
                    return std::nullopt;
                }
                const std::size_t plan = which[at++];
                Json asked = {{"plan", plan}, {"whole", whole}};
                const auto known = std::find(index_.begin(), index_.end(), plan);
                if (known != index_.end()) {
                    asked["near"] = out_.ranked[static_cast<std::size_t>(known - index_.begin())].rate;
                }
                return WorkRequest{plan, asked.dump()};
            },
            [&](std::size_t plan, const WorkReply& reply) -> std::optional<std::string> {
                take(plan, reply, whole);
                ++done;
                if (options_.progress) {
                    const double part = static_cast<double>(done) / static_cast<double>(which.size());
                    options_.progress(whole ? 0.6 + 0.4 * part : 0.6 * part);
                }
                return std::nullopt;
            });
    }

    void take(std::size_t plan, const WorkReply& reply, bool whole) {
        if (reply.end != WorkReply::End::answered) {
            throw InternalError(fmt::format("the search of {} ended: {}", describe_serving(plans_[plan]), reply.text));
        }
        const Json answer = Json::parse(reply.text);
        if (answer.contains("infeasible")) {
            const std::string why = answer["infeasible"];
            if (!whole) {
                ++(why == "limits" ? out_.miss_limits : why == "memory" ? out_.do_not_fit : out_.do_not_divide);
            }
            return;
        }
        RankedServing ranked;
        ranked.engine = plans_[plan];
        ranked.gpus = serving_gpus(ranked.engine);
        ranked.whole_load = whole;
        ranked.rate = answer["rate"];
        ranked.rate_per_gpu = ranked.rate / static_cast<double>(base_.cluster.nodes * base_.cluster.node.gpus);
        ranked.output_tokens = answer["tokens"];
        ranked.ttft = answer["ttft"];
        ranked.tbt = answer["tbt"];
        ranked.limit = answer["limit"];
        const double price = base_.cluster.node.gpu.price.value;
        if (price > 0 && ranked.output_tokens > 0) {
            ranked.usd_per_million = price / 3600 * static_cast<double>(ranked.gpus) / ranked.output_tokens * 1e6;
        }
        if (options_.found && whole && ranked.rate > best_) {
            best_ = ranked.rate;
            options_.found(
                fmt::format("best so far {:.4g} requests/s with {}", best_, describe_serving(ranked.engine)));
        }
        const auto known = std::find(index_.begin(), index_.end(), plan);
        if (known == index_.end()) {
            index_.push_back(plan);
            out_.ranked.push_back(ranked);
        } else {
            out_.ranked[static_cast<std::size_t>(known - index_.begin())] = ranked;
        }
    }

    // Ties go to less time between tokens, then to the order of the list.
    void sort() {
        std::vector<std::size_t> order(index_.size());
        for (std::size_t i = 0; i < order.size(); ++i) {
            order[i] = i;
        }
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            const RankedServing& left = out_.ranked[a];
            const RankedServing& right = out_.ranked[b];
            return std::make_tuple(!left.whole_load, -left.rate_per_gpu, left.tbt, index_[a]) <
                   std::make_tuple(!right.whole_load, -right.rate_per_gpu, right.tbt, index_[b]);
        });
        std::vector<RankedServing> ranked;
        std::vector<std::size_t> index;
        for (const std::size_t i : order) {
            ranked.push_back(out_.ranked[i]);
            index.push_back(index_[i]);
        }
        out_.ranked = std::move(ranked);
        index_ = std::move(index);
    }

    const Scenario& base_;
    const DataDirectory& data_;
    const ServingPlanOptions& options_;
    std::vector<EngineSpec> plans_;
    std::vector<std::size_t> index_;  ///< of the ranked plans in the list
    ServingSearch out_;
    double best_ = 0;  ///< requests/s of the best plan on the whole load so far
};

std::string describe_phase(const PhaseSpec& phase) {
    return phase.pipeline > 1 ? fmt::format("tensor {} x pipeline {}", phase.tensor, phase.pipeline)
                              : fmt::format("tensor {}", phase.tensor);
}

}  // namespace

ServingSearch search_serving(const Scenario& scenario, const DataDirectory& data, const ServingPlanOptions& options) {
    if (scenario.cluster.mixed) {
        throw ConfigError({scenario.cluster_mark.error("plans are searched for clusters of one kind of node")});
    }
    check_capacity(scenario, options.capacity);
    return ServingSearcher(scenario, data, options).search();
}

std::string describe_serving(const EngineSpec& engine) {
    if (engine.split) {
        return fmt::format("{} prefill of {}, {} decode of {}", engine.prefill.replicas, describe_phase(engine.prefill),
                           engine.decode.replicas, describe_phase(engine.decode));
    }
    return fmt::format("{} of {}, {} tokens per iteration", engine.mixed.replicas, describe_phase(engine.mixed),
                       engine.mixed.scheduler.token_budget);
}

std::vector<std::string> assignments_of(const EngineSpec& engine) {
    std::vector<std::string> out;
    const auto phase = [&](const std::string& path, const PhaseSpec& spec) {
        out.push_back(fmt::format("{}.replicas={}", path, spec.replicas));
        out.push_back(fmt::format("{}.tensor={}", path, spec.tensor));
        if (spec.pipeline > 1) {
            out.push_back(fmt::format("{}.pipeline={}", path, spec.pipeline));
        }
    };
    if (engine.split) {
        phase("engine.prefill", engine.prefill);
        phase("engine.decode", engine.decode);
        out.push_back(fmt::format("engine.transfer={}", engine.transfer == Transfer::layers ? "layers" : "whole"));
    } else {
        phase("engine", engine.mixed);
        out.push_back(fmt::format("engine.scheduler.token_budget={}", engine.mixed.scheduler.token_budget));
    }
    return out;
}

}  // namespace orrery::plan
