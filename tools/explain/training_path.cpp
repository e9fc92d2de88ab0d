#include "sim/run/simulation.hpp"
#include "tools/explain/paths.hpp"

#include <algorithm>
#include <cctype>

namespace orrery::inline explanation {

namespace {

class CriticalPath {
  public:
    CriticalPath(const TrainingInput& input, const RunSettings& settings)
        : input_(input),
          simulation_(input.fabric, settings),
          tiers_(input.host != nullptr
                     ? std::make_unique<NodeMemory>(*input.host, input.fabric, input.fabric.shape().pcie_bandwidth,
                                                    simulation_.resources())
                     : nullptr),
          graph_(lower(input, tiers_.get())) {
        executor_ = &simulation_.add(graph_.graph);
        simulation_.run();
        end_ = executor_->finished_at();
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
            if (task.activity != Task::kNoActivity && task.category == Category::other) {
                continue;  // between memories of a node: busy_memories
            }
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

    // The same of copies between memories of a node and of updates by its host: each is one rank's.
    [[nodiscard]] std::map<std::string, double> busy_memories() const {
        std::map<std::string, double> out;
        for (std::uint32_t i = 0; i < graph_.graph.size(); ++i) {
            const TaskId id(i);
            const Task& task = graph_.graph.task(id);
            if (task.activity != Task::kNoActivity && task.category == Category::other) {
                const std::string name = graph_.graph.name_of(id);
                const bool update = name == "update on host" || name == "add gradients";
                out[update ? "update on host" : "copies between memories"] +=
                    (executor_->end_of(id) - executor_->start_of(id)).seconds() /
                    static_cast<double>(graph_.ranks.size());
            }
        }
        return out;
    }

    // What activities put on each link over what it could carry in the whole run: the busiest of each kind. Folded runs
    // hold the links of the simulated nodes, which are like all others.
    [[nodiscard]] std::map<std::string, double> link_use() const {
        std::map<ResourceId, double> bytes;
        for (std::uint32_t i = 0; i < graph_.graph.size(); ++i) {
            const Task& task = graph_.graph.task(TaskId(i));
            if (task.activity != Task::kNoActivity) {
                const auto& activity = graph_.graph.activity(task.activity);
                for (const Demand& demand : graph_.graph.demands(activity.demand_set)) {
                    bytes[demand.resource] += activity.amount * demand.weight;
                }
            }
        }
        std::map<std::string, double> out;
        for (const auto& [resource, carried] : bytes) {
            double& most = out[kind_of(resource)];
            most = std::max(most, carried / capacity(resource) / end_.seconds());
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
                const bool link =
                    category == Category::tensor_communication || category == Category::context_communication ||
                    category == Category::expert_communication || category == Category::pipeline_communication;
                sums[{category_name(category), link                             ? "links inside the group"
                                               : category == Category::overhead ? "host"
                                                                                : "GPU"}] +=
                    graph_.prices[price][category];
            }
            return;
        }
        const std::string name = graph_.graph.name_of(id);
        if (task.activity == Task::kNoActivity) {
            sums[{name, task.category == Category::overhead ? "host" : "GPU"}] += seconds;
            return;
        }
        const double latency = std::min(seconds, task.duration.seconds());
        sums[{name, "latency"}] += latency;
        sums[{name, tightest(task)}] += seconds - latency;
    }

    [[nodiscard]] bool of_node(ResourceId resource) const { return tiers_ != nullptr && tiers_->has(resource); }
    [[nodiscard]] double capacity(ResourceId resource) const {
        return of_node(resource) ? tiers_->capacity(resource) : input_.fabric.capacity(resource);
    }
    [[nodiscard]] std::string kind_of(ResourceId resource) const {
        return kind_of_resource(of_node(resource) ? tiers_->resource_name(resource)
                                                  : input_.fabric.resource_name(resource));
    }

    // The link on which an activity's demand is largest for its capacity.
    [[nodiscard]] std::string tightest(const Task& task) const {
        const auto& activity = graph_.graph.activity(task.activity);
        double most = 0;
        std::string name = "library";
        for (const Demand& demand : graph_.graph.demands(activity.demand_set)) {
            const double load = demand.weight / capacity(demand.resource);
            if (load > most) {
                most = load;
                name = kind_of(demand.resource);
            }
        }
        return name;
    }

    const TrainingInput& input_;
    Simulation simulation_;
    std::unique_ptr<NodeMemory> tiers_;
    TrainingGraph graph_;
    Executor* executor_ = nullptr;
    SimTime end_;
};

double part(const Summary& summary, const std::string& name) {
    for (const auto& [key, seconds] : summary.breakdown) {
        if (key == name) {
            return seconds;
        }
    }
    return 0;
}

}  // namespace

void explain_training(const Scenario& scenario, ModelCache& models, const RunOutput& base, Explanation& out) {
    const Fabric fabric = fabric_of(scenario);
    const TrainingInput input = training_input(scenario, models, fabric, Placement(fabric));
    const CriticalPath path(input, run_settings(scenario));
    out.path_meaning = "what the end of the iteration waited for, by operation and what binds it";
    out.link_users = "by transfers between passes, where they were simulated";
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
            out.hidden.push_back({category_name(category), seconds, part(base.summary, category_name(category))});
        }
    }
    for (const auto& [name, seconds] : path.busy_memories()) {
        out.hidden.push_back({name, seconds, part(base.summary, name)});
    }
}

}  // namespace orrery::inline explanation
