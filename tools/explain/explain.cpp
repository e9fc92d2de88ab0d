#include "tools/explain/explain.hpp"

#include "sim/engine/executor.hpp"
#include "sim/engine/fluid.hpp"
#include "sim/network/analytic.hpp"
#include "models/scaled_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>

namespace orrery {

namespace {

constexpr double kMore = 1.1;  // rates times this, latencies over it
constexpr double kMost = 1 - 1 / kMore;

// "NIC out 17" -> "NIC out": equal links are one resource here.
std::string kind_of_resource(std::string name) {
    while (!name.empty() && (std::isdigit(static_cast<unsigned char>(name.back())) != 0 || name.back() == ' ')) {
        name.pop_back();
    }
    for (const char* end : {", link", ", GPU"}) {
        if (name.ends_with(end)) {
            name.resize(name.size() - std::string(end).size());
        }
    }
    return name;
}

class CriticalPath {
  public:
    explicit CriticalPath(const TrainingInput& input, Fidelity fidelity, SimTime window)
        : input_(input), graph_(lower(input)) {
        if (fidelity == Fidelity::analytic) {
            sharing_ = std::make_unique<AnalyticSharing>(engine_);
        } else {
            sharing_ = std::make_unique<FluidSharing>(engine_, window);
        }
        input.fabric.add_to(*sharing_);
        executor_ = std::make_unique<Executor>(engine_, *sharing_, graph_.graph);
        end_ = executor_->run();
    }

    [[nodiscard]] std::vector<BlameRow> blame() const {
        std::map<std::pair<std::string, std::string>, double> sums;
        TaskId at;
        for (std::uint32_t i = 0; i < graph_.graph.size() && !at.valid(); ++i) {
            if (executor_->end_of(TaskId(i)) == end_) {
                at = TaskId(i);
            }
        }
        while (at.valid()) {
            book(at, sums);
            const TaskId before = executor_->released_by(at);
            const SimTime since = before.valid() ? executor_->end_of(before) : SimTime();
            if (executor_->start_of(at) > since) {
                sums[{"waiting", "grouped completions"}] += (executor_->start_of(at) - since).seconds();
            }
            at = before;
        }
        std::vector<BlameRow> rows;
        for (const auto& [key, seconds] : sums) {
            if (seconds > 0) {
                rows.push_back({key.first, key.second, seconds});
            }
        }
        std::stable_sort(rows.begin(), rows.end(),
                         [](const BlameRow& a, const BlameRow& b) { return a.seconds > b.seconds; });
        return rows;
    }

    // Time that transfers of a category are under way, mean over the simulated ranks: what is priced inside passes, and
    // the activities. A collective is one task of all `members` that hold the same weights, a send is the sender's alone.
    [[nodiscard]] std::map<Category, double> busy(double members) const {
        std::map<Category, double> out;
        const auto ranks = static_cast<double>(graph_.ranks.size());
        for (std::uint32_t i = 0; i < graph_.graph.size(); ++i) {
            const TaskId id(i);
            const Task& task = graph_.graph.task(id);
            if (task.activity != Task::kNoActivity) {
                const double owners = task.category == Category::pipeline_communication ? 1 : members;
                out[task.category] += (executor_->end_of(id) - executor_->start_of(id)).seconds() * owners / ranks;
            } else if (price_of(id) != TrainingGraph::kNoPrice) {
                for (const Category category : {Category::tensor_communication, Category::pipeline_communication,
                                                Category::data_communication, Category::context_communication}) {
                    out[category] += graph_.prices[price_of(id)][category] / ranks;
                }
            }
        }
        return out;
    }

    // What activities put on each link over what it could carry in the whole run: the busiest of each kind. Folded runs
    // hold the links of the simulated nodes, which are like all others.
    [[nodiscard]] std::map<std::string, double> link_use() const {
        std::vector<double> bytes(input_.fabric.resource_count());
        for (std::uint32_t i = 0; i < graph_.graph.size(); ++i) {
            const Task& task = graph_.graph.task(TaskId(i));
            if (task.activity != Task::kNoActivity) {
                const auto& activity = graph_.graph.activity(task.activity);
                for (const Demand& demand : graph_.graph.demands(activity.demand_set)) {
                    bytes[demand.resource.value()] += activity.amount * demand.weight;
                }
            }
        }
        std::map<std::string, double> out;
        for (std::uint32_t i = 0; i < bytes.size(); ++i) {
            if (bytes[i] > 0) {
                double& most = out[kind_of_resource(input_.fabric.resource_name(ResourceId(i)))];
                most = std::max(most, bytes[i] / input_.fabric.capacity(ResourceId(i)) / end_.seconds());
            }
        }
        return out;
    }

  private:
    // Tasks without a place on a compute stream, such as barriers, may lie beyond the list.
    [[nodiscard]] std::uint32_t price_of(TaskId id) const {
        return id.value() < graph_.price_of.size() ? graph_.price_of[id.value()] : TrainingGraph::kNoPrice;
    }

    void book(TaskId id, std::map<std::pair<std::string, std::string>, double>& sums) const {
        const Task& task = graph_.graph.task(id);
        const double seconds = (executor_->end_of(id) - executor_->start_of(id)).seconds();
        const std::uint32_t price = price_of(id);
        if (price != TrainingGraph::kNoPrice) {
            for (int c = 0; c < kCategoryCount; ++c) {
                const auto category = static_cast<Category>(c);
                const bool link = category == Category::tensor_communication ||
                                  category == Category::context_communication ||
                                  category == Category::pipeline_communication;
                sums[{category_name(category), link                             ? "links inside the group"
                                               : category == Category::overhead ? "host"
                                                                                : "GPU"}] +=
                    graph_.prices[price][category];
            }
            return;
        }
        const std::string name = graph_.graph.name_of(id);
        if (task.activity == Task::kNoActivity) {
            sums[{name, "GPU"}] += seconds;
            return;
        }
        const double latency = std::min(seconds, task.duration.seconds());
        sums[{name, "latency"}] += latency;
        sums[{name, tightest(task)}] += seconds - latency;
    }

    // The link on which an activity's demand is largest for its capacity.
    [[nodiscard]] std::string tightest(const Task& task) const {
        const auto& activity = graph_.graph.activity(task.activity);
        double most = 0;
        std::string name = "library";
        for (const Demand& demand : graph_.graph.demands(activity.demand_set)) {
            const double load = demand.weight / input_.fabric.capacity(demand.resource);
            if (load > most) {
                most = load;
                name = kind_of_resource(input_.fabric.resource_name(demand.resource));
            }
        }
        return name;
    }

    const TrainingInput& input_;
    TrainingGraph graph_;
    Engine engine_;
    std::unique_ptr<Sharing> sharing_;
    std::unique_ptr<Executor> executor_;
    SimTime end_;
};

using Parts = std::vector<std::pair<std::string, double>>;

struct Outcome {
    double seconds;
    Parts parts;
};

Outcome outcome_of(const Summary& summary, const std::string& metric) {
    return {summary.find(metric)->value, summary.breakdown};
}

// The same run on devices whose arithmetic or memory is faster.
Outcome run_scaled(const Scenario& scenario, const DataDirectory& data, double arithmetic, double memory,
                   const std::string& metric) {
    ModelCache models(data, [&](std::unique_ptr<CostModel> base, const DeviceSpec& device) {
        return std::make_unique<ScaledDevice>(std::move(base), device, arithmetic, memory);
    });
    RunOptions options;
    options.check_memory = false;
    return outcome_of(run(scenario, models, options).summary, metric);
}

double part(const Parts& parts, const std::string& name) {
    for (const auto& [key, seconds] : parts) {
        if (key == name) {
            return seconds;
        }
    }
    return 0;
}

struct Lever {
    const char* name;
    void (*change)(Scenario&);
};

// Everything that is not the device's own rates; what a scenario does not use changes nothing and is left out.
constexpr Lever kLevers[] = {
    {"bandwidth inside the node", [](Scenario& s) { s.cluster.node.intra_bandwidth.value *= kMore; }},
    {"bandwidth between nodes",
     [](Scenario& s) {
         s.cluster.node.nic_bandwidth.value *= kMore;
         s.cluster.fabric.link *= kMore;
     }},
    {"PCIe bandwidth", [](Scenario& s) { s.cluster.node.pcie_bandwidth.value *= kMore; }},
    {"lower network latency",
     [](Scenario& s) {
         s.cluster.node.intra_latency.value /= kMore;
         s.cluster.node.nic_latency.value /= kMore;
         s.cluster.fabric.latency /= kMore;
     }},
    {"lower host overhead",
     [](Scenario& s) {
         s.software.layer_overhead.value /= kMore;
         s.software.step_overhead.value /= kMore;
     }},
};

Elasticity elasticity(const std::string& name, const Outcome& before, const Outcome& after) {
    Elasticity out{name, before.seconds - after.seconds, (before.seconds - after.seconds) / before.seconds / kMost, {}};
    for (const auto& [phase, seconds] : before.parts) {
        out.by_phase.emplace_back(phase, seconds - part(after.parts, phase));
    }
    return out;
}

std::vector<PhaseBound> bounds_of(const Outcome& base, const std::vector<Elasticity>& levers) {
    std::vector<PhaseBound> out;
    for (const auto& [phase, seconds] : base.parts) {
        if (seconds <= 0) {
            continue;
        }
        PhaseBound bound{phase, seconds, "the schedule", 0};
        // The bubble shrinks with whatever makes passes shorter: its cause is the schedule all the same.
        for (const Elasticity& lever : levers) {
            const double share = part(lever.by_phase, phase) / seconds / kMost;
            if (phase != "bubble" && share > std::max(0.02, bound.share)) {
                bound.bound = lever.lever;
                bound.share = share;
            } else if (phase != "bubble" && bound.share == 0) {
                bound.bound = "what the software fixes";
            }
        }
        out.push_back(std::move(bound));
    }
    return out;
}

std::string verdict_of(const Explanation& e) {
    if (e.levers.empty() || e.levers[0].gain_s <= 0) {
        return "None of the levers tried shortens this run.";
    }
    const auto name_of = [](const Elasticity& lever) {
        return lever.lever.rfind("lower ", 0) == 0 ? lever.lever.substr(6) : lever.lever;
    };
    const Elasticity& first = e.levers[0];
    std::string out = fmt::format("{} limits this run: 10 % {} makes it {:.1f} % faster", name_of(first),
                                  name_of(first) == first.lever ? "more" : "less", 100 * first.gain_s / e.seconds);
    if (e.levers.size() > 1 && e.levers[1].gain_s > 0.001 * e.seconds) {
        out += fmt::format("; next is {} with {:.1f} %", name_of(e.levers[1]), 100 * e.levers[1].gain_s / e.seconds);
    }
    for (const PhaseBound& phase : e.phases) {
        if (phase.phase == "bubble" && phase.seconds > 0.05 * e.seconds) {
            out += fmt::format("; {:.1f} % is pipeline bubble, which another plan may shrink",
                               100 * phase.seconds / e.seconds);
        }
    }
    out[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(out[0])));
    return out + ".";
}

void explain_training(const Scenario& scenario, ModelCache& models, const RunOutput& base, Explanation& out) {
    const Fabric fabric(shape_of(scenario.cluster, scenario.cluster_mark));
    const TrainingInput input = training_input(scenario, models, fabric);
    const CriticalPath path(input, scenario.network.fidelity, SimTime::from_seconds(scenario.network.batch));
    out.critical_path = path.blame();
    out.link_use = path.link_use();
    if (base.training->folded_into_one > 1) {
        // A folded run leaves most traffic of switches out: it cannot bind there.
        std::erase_if(out.link_use, [](const auto& use) {
            return use.first.find("leaf") != std::string::npos || use.first.find("spine") != std::string::npos ||
                   use.first.find("pod") != std::string::npos;
        });
    }
    const double members =
        static_cast<double>(scenario.plan.data * scenario.plan.context) / base.training->folded_into_one;
    for (const auto& [category, seconds] : path.busy(members)) {
        if (seconds > 0) {
            out.hidden.push_back(
                {category_name(category), seconds, part(base.summary.breakdown, category_name(category))});
        }
    }
}

}  // namespace

std::string headline_metric(ScenarioKind kind) {
    switch (kind) {
        case ScenarioKind::training:
            return "iteration_time_s";
        case ScenarioKind::collective:
            return "collective_time_s";
        case ScenarioKind::replay:
            return "replay_time_s";
        case ScenarioKind::serving:
            return "e2e_s.mean";
        case ScenarioKind::network:
            break;
    }
    return "fct_s.max";
}

Explanation explain(const Scenario& given, ModelCache& models) {
    Explanation out;
    Scenario scenario = given;
    const bool by_packet = given.kind == ScenarioKind::training && given.network.fidelity == Fidelity::packet;
    if (by_packet) {
        scenario.network.fidelity = Fidelity::fluid;
    }
    const std::string metric = headline_metric(scenario.kind);
    const RunOutput base = run(scenario, models, {});
    const Outcome before = outcome_of(base.summary, metric);
    out.seconds = before.seconds;
    if (scenario.kind == ScenarioKind::training) {
        explain_training(scenario, models, base, out);
    }
    if (scenario.kind == ScenarioKind::training || scenario.kind == ScenarioKind::serving) {
        const DataDirectory& data = models.data();
        out.levers.push_back(elasticity("arithmetic rate", before, run_scaled(scenario, data, kMore, 1, metric)));
        out.levers.push_back(elasticity("memory bandwidth", before, run_scaled(scenario, data, 1, kMore, metric)));
    }
    for (const Lever& lever : kLevers) {
        Scenario changed = scenario;
        lever.change(changed);
        if (resolved_json(changed) != resolved_json(scenario)) {
            RunOptions options;
            options.check_memory = false;
            out.levers.push_back(
                elasticity(lever.name, before, outcome_of(run(changed, models, options).summary, metric)));
        }
    }
    std::stable_sort(out.levers.begin(), out.levers.end(),
                     [](const Elasticity& a, const Elasticity& b) { return a.gain_s > b.gain_s; });
    out.phases = bounds_of(before, out.levers);
    out.verdict = (by_packet ? "Of the same run with fidelity fluid: " : "") + verdict_of(out);
    return out;
}

}  // namespace orrery
