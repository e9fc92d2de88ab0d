#include "sim/run/simulation.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "tools/explain/paths.hpp"
#include "workloads/training/lowering/node_memories.hpp"

#include <algorithm>
#include <cctype>
#include <tuple>

namespace orrery::explain {

namespace {

class CriticalPath {
  public:
    CriticalPath(const TrainingInput& input, const RunSettings& settings)
        : input_(input),
          simulation_(input.fabric, settings),
          tiers_(input.host != nullptr ? std::make_unique<NodeMemories>(input, simulation_.resources()) : nullptr),
          graph_(lower(input, tiers_.get())) {
        executor_ = &simulation_.add(graph_.graph);
        simulation_.run();
        end_ = executor_->finished_at();
        ORRERY_ASSERT(graph_.graph.size() > 0 && !graph_.ranks.empty());
    }

    [[nodiscard]] std::vector<BlameRow> blame() const {
        std::map<std::pair<std::string, std::string>, double> sums;
        TaskId at;
        for (std::uint32_t i = 0; i < graph_.graph.size() && !at.valid(); ++i) {
            if (executor_->end_of(TaskId(i)) == end_) {
                at = TaskId(i);
            }
        }
        ORRERY_ASSERT(at.valid());  // some task ends last
        while (at.valid()) {
            book(at, sums);
            const TaskId before = executor_->released_by(at);
            const SimTime since = before.valid() ? executor_->end_of(before) : SimTime();
            ORRERY_ASSERT(executor_->start_of(at) >= since);  // it waited for the one before
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
    // the activities. A collective is one task of all `members` that hold the same weights, an exchange of a pass one of its group, a
    // send is the sender's alone.
    [[nodiscard]] std::map<Category, double> busy(double members) const {
        std::map<Category, double> out;
        const auto ranks = static_cast<double>(graph_.ranks.size());
        for (std::uint32_t i = 0; i < graph_.graph.size(); ++i) {
            const TaskId id(i);
            const Task task = graph_.graph.task(id);
            if (task.activity != Task::kNoActivity && task.category == Category::other) {
                continue;  // between memories of a node: busy_memories
            }
            if (task.activity != Task::kNoActivity) {
                const double group = exchanging(task.category);
                const double owners = task.category == Category::pipeline_communication ? 1
                                      : group > 0 ? std::min<double>(group, graph_.ranks_per_stage)
                                                  : members;
                out[task.category] += (executor_->end_of(id) - executor_->start_of(id)).seconds() * owners / ranks;
            } else if (price_of(id) != TrainingGraph::kNoPrice) {
                for (const Category category :
                     {Category::tensor_communication, Category::pipeline_communication, Category::data_communication,
                      Category::context_communication, Category::expert_communication}) {
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
            const Task task = graph_.graph.task(id);
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
            const Task task = graph_.graph.task(TaskId(i));
            if (task.activity != Task::kNoActivity) {
                const TaskGraph::Activity activity = graph_.graph.activity(TaskId(i));
                for (const Demand& demand : graph_.graph.demands(activity.demand_set)) {
                    bytes[demand.resource] += activity.amount * demand.weight;
                }
            }
        }
        std::map<std::string, double> out;
        for (const auto& [resource, carried] : bytes) {
            double& most = out[kind_of(resource)];
            ORRERY_ASSERT(carried >= 0 && capacity(resource) > 0);
            most = std::max(most, carried / capacity(resource) / end_.seconds());
        }
        return out;
    }

    /// What the passes of a rank run, by name: programs of their layers and tables, alone, and other tasks of the compute
    /// streams. Mean over the simulated ranks with devices like the first one's.
    [[nodiscard]] std::vector<KernelRow> kernels() const {
        KernelSums sums;
        std::map<PassWork, PassCounts> passes;
        double ranks = 0;
        for (std::size_t r = 0; r < graph_.ranks.size(); ++r) {
            if (like_first(graph_.ranks[r])) {
                ++ranks;
                for (const TaskId id : graph_.stream(r)) {
                    count(id, passes, sums);
                }
            }
        }
        ORRERY_ASSERT(ranks >= 1);  // the first is like itself
        const PassCost cost = cost_of_first();
        for (const auto& [work, counts] : passes) {
            for (const auto& [kind, layers] : counts.layers) {
                add(cost.program(LayerKind::at(kind), work), layers, work, sums);
            }
            add(cost.embedding_program(work), counts.embeddings, work, sums);
            add(cost.head_program(work), counts.heads, work, sums);
            for (const auto& [part, times] : counts.encoder) {
                add(cost.encoder_program(part, work), times, work, sums, "encoder: ");
            }
        }
        std::vector<KernelRow> rows;
        for (const auto& [key, sum] : sums) {
            if (sum.seconds > 0) {
                const auto& [name, pass, stream] = key;
                rows.push_back({name, pass, stream, sum.count / ranks, sum.seconds / ranks});
            }
        }
        std::stable_sort(rows.begin(), rows.end(),
                         [](const KernelRow& a, const KernelRow& b) { return a.seconds > b.seconds; });
        return rows;
    }

  private:
    struct KernelSum {
        double count = 0, seconds = 0;
    };
    using KernelSums =
        std::map<std::tuple<std::string, std::string, std::string>, KernelSum>;  ///< by name, pass, stream
    /// What passes of one kind of work went through.
    struct PassCounts {
        std::map<std::size_t, double> layers;  ///< by kind
        double embeddings = 0, heads = 0;
        std::map<EncoderPart, double> encoder;  ///< its parts, where there is one
    };

    [[nodiscard]] PassCost cost_of_first() const {
        const TrainingInput& in = input_;
        if (in.groups.empty()) {
            return {in.model,  in.plan,        in.software, in.device,  in.gpu,
                    in.fabric, in.collectives, in.paths,    in.priced()};
        }
        const GpuId first = in.first_gpu(0, 0);
        ORRERY_ASSERT(in.fabric.group_of(first) < in.groups.size());
        const GroupDevice& group = in.groups[in.fabric.group_of(first)];
        return {in.model,           in.plan,  in.software, *group.device, *group.gpu, in.fabric,
                *group.collectives, in.paths, in.priced()};
    }

    // Ranks that exchange inside passes; 0: it is no such category.
    [[nodiscard]] double exchanging(Category category) const {
        const PlanSpec& plan = input_.plan;
        switch (category) {
            case Category::tensor_communication:
                return static_cast<double>(plan.tensor);
            case Category::context_communication:
                return static_cast<double>(plan.context);
            case Category::expert_communication:
                return static_cast<double>(plan.experts.expert * (plan.experts.dispatch == TokenDispatch::all_gather
                                                                      ? plan.expert_tensor()
                                                                      : 1));
            default:
                return 0;
        }
    }

    [[nodiscard]] bool like_first(std::uint32_t rank) const {
        const auto group = [&](std::uint32_t of) { return input_.fabric.group_of(input_.placement.gpu(of)); };
        return input_.groups.empty() || group(rank) == group(graph_.ranks[0]);
    }

    void count(TaskId id, std::map<PassWork, PassCounts>& passes, KernelSums& sums) const {
        const Task task = graph_.graph.task(id);
        ORRERY_ASSERT(task.label < graph_.labels.size());
        const TaskLabel& label = graph_.labels[task.label];
        const bool cut = label.work == PassWork::scores || label.work == PassWork::score_gradients;
        if (!label.pass || cut || task.category == Category::data_communication) {
            if (executor_->end_of(id) == executor_->start_of(id)) {
                return;  // a mark between others
            }
            KernelSum& sum = sums[{graph_.graph.name_of(id), "", "kernels"}];
            sum.count += 1;
            sum.seconds += (executor_->end_of(id) - executor_->start_of(id)).seconds();
            return;
        }
        PassCounts& counts = passes[label.work];
        for (std::uint32_t i = 0; i < label.layers; ++i) {
            counts.layers[input_.model.kind_of(label.layer + static_cast<std::int64_t>(i)).index()] += 1;
        }
        counts.embeddings += label.embedding ? 1 : 0;
        counts.heads += label.head ? 1 : 0;
        if (label.encoder > 0) {
            counts.encoder[EncoderPart::layer] += label.encoder;
        }
        if (label.projector) {
            counts.encoder[EncoderPart::patches] += 1;
            counts.encoder[EncoderPart::projector] += 1;
        }
    }

    static void add(const PassProgram& program, double times, PassWork work, KernelSums& sums,
                    const std::string& before = "") {
        const char* pass = work == PassWork::forward           ? "forward"
                           : work == PassWork::input_gradient  ? "input gradient"
                           : work == PassWork::weight_gradient ? "weight gradient"
                                                               : "backward";
        const std::vector<PlayedOperation> played = program.play();
        ORRERY_ASSERT(played.size() == program.operations().size());
        for (std::size_t i = 0; i < played.size(); ++i) {
            const PassOperation& operation = program.operations()[i];
            const char* within = operation.category == Category::recompute ? "recomputation" : pass;
            KernelSum& sum = sums[{before + operation.name, within, pass_stream_name(operation.stream)}];
            sum.count += times;
            ORRERY_ASSERT(played[i].end >= played[i].start);
            sum.seconds += times * (played[i].end - played[i].start);
        }
    }

    [[nodiscard]] std::uint32_t price_of(TaskId id) const { return graph_.price_of(id); }

    void book(TaskId id, std::map<std::pair<std::string, std::string>, double>& sums) const {
        const Task task = graph_.graph.task(id);
        const double seconds = (executor_->end_of(id) - executor_->start_of(id)).seconds();
        const std::uint32_t price = price_of(id);
        ORRERY_ASSERT(price == TrainingGraph::kNoPrice || price < graph_.prices.size());
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
        sums[{name, tightest(id)}] += seconds - latency;
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
    [[nodiscard]] std::string tightest(TaskId id) const {
        const TaskGraph::Activity activity = graph_.graph.activity(id);
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
    std::unique_ptr<NodeMemories> tiers_;
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
    ORRERY_ASSERT(base.training && base.training->folded_into_one >= 1);
    const TrainingInput input = training_input(scenario, models, fabric, Placement(fabric));
    const CriticalPath path(input, run_settings(scenario));
    out.path_meaning = "what the end of the iteration waited for, by operation and what binds it";
    out.link_users = "by transfers between passes, where they were simulated";
    out.critical_path = path.blame();
    out.link_use = path.link_use();
    out.kernels = path.kernels();
    if (base.training->folded_into_one > 1) {
        // A folded run leaves most traffic of switches out: it cannot bind there.
        std::erase_if(out.link_use, [](const auto& use) {
            return use.first.find("leaf") != std::string::npos || use.first.find("spine") != std::string::npos ||
                   use.first.find("pod") != std::string::npos;
        });
    }
    const double members =
        static_cast<double>(scenario.as<TrainingKind>().plan.data * scenario.as<TrainingKind>().plan.context) /
        base.training->folded_into_one;
    for (const auto& [category, seconds] : path.busy(members)) {
        if (seconds > 0) {
            out.hidden.push_back({category_name(category), seconds, part(base.summary, category_name(category))});
        }
    }
    for (const auto& [name, seconds] : path.busy_memories()) {
        out.hidden.push_back({name, seconds, part(base.summary, name)});
    }
}

}  // namespace orrery::explain
