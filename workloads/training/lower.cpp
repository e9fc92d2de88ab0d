#include "workloads/training/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery {

namespace {

constexpr std::uint8_t kComputeStream = 0;
constexpr std::uint8_t kSendStream = 1;
constexpr std::uint8_t kGatherStream = 2;
constexpr std::uint8_t kReduceStream = 3;

// Builds the graph of one iteration. Rank r of the job sits on GPU r: tensor-parallel ranks are neighbours, then
// context, data and pipeline (Megatron's order).
class Lowering {
  public:
    explicit Lowering(const TrainingInput& input)
        : in_(input),
          cost_(input.model, input.plan, input.software, input.device, input.fabric, input.collectives),
          tensor_(static_cast<std::uint32_t>(input.plan.tensor)),
          context_(static_cast<std::uint32_t>(input.plan.context)),
          data_(static_cast<std::uint32_t>(input.plan.data)),
          stages_(static_cast<std::uint32_t>(input.plan.pipeline)),
          chunks_(input.plan.schedule == ScheduleKind::interleaved ? static_cast<std::uint32_t>(input.plan.chunks) : 1),
          micro_batches_(static_cast<std::uint32_t>(input.plan.micro_batches())) {
        choose_block();
        list_ranks();
    }

    TrainingGraph build() {
        if (in_.plan.zero >= 2 && stages_ == 1) {
            build_sharded();
        } else {
            build_pipeline();
        }
        out_.graph.freeze();
        out_.stages = stages_;
        out_.ranks_per_stage = tensor_ * context_ * block_;
        out_.folded_into_one = data_ / block_;
        return std::move(out_);
    }

  private:
    [[nodiscard]] std::uint32_t per_replica() const { return tensor_ * context_; }
    [[nodiscard]] std::uint32_t global_rank(std::uint32_t stage, std::uint32_t replica, std::uint32_t member) const {
        return (stage * data_ + replica) * per_replica() + member;
    }
    /// Index among the simulated ranks.
    [[nodiscard]] std::uint32_t local(std::uint32_t stage, std::uint32_t replica, std::uint32_t member) const {
        return (stage * block_ + replica) * per_replica() + member;
    }

    // Replicas that share nodes among themselves and with nobody else: the smallest set that can stand for all.
    void choose_block() {
        const std::uint32_t gpus = in_.fabric.shape().gpus_per_node;
        const std::uint32_t stage_ranks = per_replica() * data_;
        block_ = data_;
        if (!in_.fold || !in_.fabric.full_bisection() || in_.paths != PathChoice::spray) {
            return;
        }
        const std::uint32_t candidate = per_replica() >= gpus ? 1 : gpus / per_replica();
        const bool whole_nodes = per_replica() >= gpus ? per_replica() % gpus == 0 : gpus % per_replica() == 0;
        if (whole_nodes && stage_ranks % gpus == 0 && data_ % candidate == 0) {
            block_ = candidate;
        }
    }

    void list_ranks() {
        kept_nodes_.assign(in_.fabric.shape().nodes, block_ == data_);
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for (std::uint32_t replica = 0; replica < block_; ++replica) {
                for (std::uint32_t member = 0; member < per_replica(); ++member) {
                    const std::uint32_t rank = global_rank(stage, replica, member);
                    out_.ranks.push_back(rank);
                    kept_nodes_[in_.fabric.node_of(GpuId(rank))] = true;
                }
            }
        }
        out_.compute.resize(out_.ranks.size());
        last_.assign(out_.ranks.size() * 4, TaskId());
    }

    std::uint32_t add_price(const Price& price) {
        out_.prices.push_back(price);
        return static_cast<std::uint32_t>(out_.prices.size() - 1);
    }

    // Appends a task to an in-order stream of a simulated rank.
    TaskId in_order(std::uint32_t rank, std::uint8_t stream, TaskId id) {
        TaskId& last = last_[rank * 4 + stream];
        if (last.valid()) {
            out_.graph.add_edge(last, id);
        }
        last = id;
        out_.price_of.resize(out_.graph.size(), TrainingGraph::kNoPrice);
        return id;
    }

    TaskId compute(std::uint32_t rank, std::uint16_t name, Category category, std::uint32_t price) {
        Task task;
        task.duration = SimTime::from_seconds(out_.prices[price].total());
        task.rank = out_.ranks[rank];
        task.name = name;
        task.stream = kComputeStream;
        task.category = category;
        const TaskId id = in_order(rank, kComputeStream, out_.graph.add(task));
        out_.price_of[id.value()] = price;
        out_.compute[rank].push_back(id);
        return id;
    }

    std::uint32_t demand_set(const GroupTransfer& transfer) { return out_.graph.add_demands(transfer.demands); }

    TaskId transfer(std::uint32_t rank, std::uint8_t stream, std::uint16_t name, Category category, double latency,
                    std::uint32_t set, double bytes) {
        Task task;
        task.duration = SimTime::from_seconds(latency);
        task.rank = out_.ranks[rank];
        task.name = name;
        task.stream = stream;
        task.category = category;
        const TaskId id = out_.graph.add_activity(task, set, bytes);
        out_.price_of.resize(out_.graph.size(), TrainingGraph::kNoPrice);
        return id;
    }

    // A collective of the replicas that hold the same weights: one task for the whole group.
    struct Group {
        std::vector<std::uint32_t> members;  ///< simulated ranks
        std::vector<GpuId> gpus;             ///< all ranks, in ring order
    };

    // Groups of the data-parallel collectives of a stage, by member of the tensor-parallel group. Context-parallel
    // ranks hold the same weights and take part. `first`/`count`/`stride`: replicas of the group.
    std::vector<Group> groups(std::uint32_t stage, std::uint32_t count, bool replicas_of_shards) {
        // Ranks with the same weights in order: replica-major, then context.
        const std::uint32_t width = data_ * context_;
        const std::uint32_t shard = count;
        std::vector<Group> out;
        for (std::uint32_t t = 0; t < tensor_; ++t) {
            const std::uint32_t group_count = replicas_of_shards ? shard : width / shard;
            for (std::uint32_t g = 0; g < group_count; ++g) {
                Group group;
                const std::uint32_t size = replicas_of_shards ? width / shard : shard;
                for (std::uint32_t i = 0; i < size; ++i) {
                    const std::uint32_t index = replicas_of_shards ? g + i * shard : g * shard + i;
                    const std::uint32_t replica = index / context_;
                    const std::uint32_t member = index % context_ * tensor_ + t;
                    group.gpus.emplace_back(global_rank(stage, replica, member));
                    if (replica < block_) {
                        group.members.push_back(local(stage, replica, member));
                    }
                }
                if (!group.members.empty() && group.gpus.size() > 1) {
                    out.push_back(std::move(group));
                }
            }
        }
        return out;
    }

    GroupTransfer group_transfer(CollectiveOp op, const Group& group, double bytes) const {
        return make_transfer(in_.fabric, in_.collectives, op, group.gpus, bytes,
                             block_ == data_ ? nullptr : &kept_nodes_);
    }

    // Adds a collective that starts when `after` of every member is done, in order on a stream of each.
    TaskId collective(const Group& group, std::uint8_t stream, std::uint16_t name, CollectiveOp op, double bytes,
                      const std::vector<TaskId>& after) {
        const GroupTransfer planned = group_transfer(op, group, bytes);
        const TaskId id = transfer(group.members[0], stream, name, Category::data_communication, planned.latency,
                                   demand_set(planned), planned.bytes);
        for (const std::uint32_t member : group.members) {
            in_order(member, stream, id);
        }
        for (const TaskId task : after) {
            out_.graph.add_edge(task, id);
        }
        return id;
    }

    [[nodiscard]] double parameters(std::uint32_t layers, bool first, bool last) const {
        const ModelSpec& model = in_.model;
        const bool shared = first && last && model.tied_embeddings;
        const double tables = (first ? 1 : 0) + (last && !shared ? 1 : 0);
        return (layers * model.layer_parameters() + tables * model.embedding_parameters()) / tensor_;
    }

    Price chunk_price(std::uint32_t layers, bool first, bool last, bool backward) const {
        Price price = (backward ? cost_.layer_backward() : cost_.layer_forward()) * layers;
        if (first) {
            price += backward ? cost_.embedding_backward() : cost_.embedding_forward();
        }
        if (last) {
            price += backward ? cost_.head_backward() : cost_.head_forward();
        }
        return price;
    }

    void build_pipeline();
    void build_sharded();
    void finish_step(const std::vector<std::vector<TaskId>>& reduced, const std::vector<double>& stage_parameters);

    TrainingInput in_;
    PassCost cost_;
    std::uint32_t tensor_, context_, data_, stages_, chunks_, micro_batches_;
    std::uint32_t block_ = 1;  ///< simulated replicas
    std::vector<bool> kept_nodes_;
    std::vector<TaskId> last_;  ///< by simulated rank and stream
    TrainingGraph out_;
};

void Lowering::build_pipeline() {
    const PlanSpec& plan = in_.plan;
    TaskGraph& graph = out_.graph;
    const std::uint32_t virtual_stages = stages_ * chunks_;
    const std::vector<std::uint32_t> layers = split_layers(in_.model.layers, virtual_stages);
    const std::uint16_t forward_name = graph.name("forward");
    const std::uint16_t backward_name = graph.name("backward");
    const std::uint16_t send_name = graph.name("send activations");
    const std::uint16_t send_back_name = graph.name("send gradients");
    const std::uint16_t start_name = graph.name("start of step");
    const std::uint16_t reduce_name = graph.name("reduce gradients");
    const std::uint16_t gather_name = graph.name("gather weights");
    const double gather = cost_.boundary_gather();

    // Prices of the passes: a chunk's layers, the tables at the ends, and completing a scattered input.
    std::vector<std::uint32_t> forward_price(virtual_stages);
    std::vector<std::uint32_t> backward_price(virtual_stages);
    for (std::uint32_t v = 0; v < virtual_stages; ++v) {
        for (const bool backward : {false, true}) {
            const bool first = v == 0;
            const bool last = v + 1 == virtual_stages;
            Price price = chunk_price(layers[v], first, last, backward);
            if (virtual_stages > 1 && !(backward ? last : first)) {
                price[Category::pipeline_communication] += gather;
            }
            out_.hardware_flops += price.flops * micro_batches_ / stages_;
            (backward ? backward_price : forward_price)[v] = add_price(price);
        }
    }
    Price start;
    start[Category::overhead] = in_.software.step_overhead.value;
    const std::uint32_t start_price = add_price(start);

    const auto rank_count = static_cast<std::uint32_t>(out_.ranks.size());
    const std::uint32_t per_stage = block_ * per_replica();
    const std::size_t passes_of_rank = static_cast<std::size_t>(virtual_stages) * micro_batches_;
    // Task of each pass, by (member of the stage's ranks, virtual stage, micro-batch).
    std::vector<TaskId> forward_task(per_stage * passes_of_rank);
    std::vector<TaskId> backward_task(per_stage * passes_of_rank);
    const auto slot = [&](std::uint32_t member, std::uint32_t v, std::uint32_t m) {
        return (static_cast<std::size_t>(member) * virtual_stages + v) * micro_batches_ + m;
    };
    std::vector<std::vector<TaskId>> gathered(rank_count);  // by rank and chunk, with overlapped parameter gathers
    const std::uint32_t group_size = data_ * context_;
    std::vector<std::vector<Group>> stage_groups(stages_);
    for (std::uint32_t stage = 0; group_size > 1 && stage < stages_; ++stage) {
        stage_groups[stage] = groups(stage, group_size, false);
    }
    const bool early_gather = plan.zero >= 1 && plan.overlap_parameters;
    for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
        compute(rank, start_name, Category::overhead, start_price);
    }
    const auto chunk_parameters = [&](std::uint32_t stage, std::uint32_t chunk) {
        const std::uint32_t v = chunk * stages_ + stage;
        return parameters(layers[v], v == 0, v + 1 == virtual_stages);
    };
    if (early_gather) {
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
                for (const Group& group : stage_groups[stage]) {
                    const TaskId id = collective(group, kGatherStream, gather_name, CollectiveOp::all_gather,
                                                 2 * chunk_parameters(stage, chunk), {});
                    for (const std::uint32_t member : group.members) {
                        gathered[member].resize(chunks_);
                        gathered[member][chunk] = id;
                    }
                }
            }
        }
    }

    // Passes in each rank's order. Sends come in a second step, when the tasks of both ends exist.
    std::vector<std::vector<TaskId>> last_backward(rank_count, std::vector<TaskId>(chunks_));
    std::vector<std::vector<Pass>> schedules(stages_);
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        schedules[stage] = schedule_of(plan.schedule, stages_, chunks_, micro_batches_, stage);
        for (std::uint32_t member = 0; member < per_stage; ++member) {
            const std::uint32_t rank = stage * per_stage + member;
            for (const Pass& pass : schedules[stage]) {
                const std::uint32_t v = pass.chunk * stages_ + stage;
                const TaskId id = compute(rank, pass.backward ? backward_name : forward_name,
                                          pass.backward ? Category::backward : Category::forward,
                                          (pass.backward ? backward_price : forward_price)[v]);
                (pass.backward ? backward_task : forward_task)[slot(member, v, pass.micro_batch)] = id;
                if (pass.backward) {
                    last_backward[rank][pass.chunk] = id;
                } else if (!gathered[rank].empty()) {
                    if (gathered[rank][pass.chunk].valid()) {
                        graph.add_edge(gathered[rank][pass.chunk], id);
                        gathered[rank][pass.chunk] = TaskId();
                    }
                }
            }
        }
    }

    // Sends between neighbouring virtual stages.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint32_t, GroupTransfer>> sets;
    const double bytes = cost_.boundary_bytes();
    const auto send = [&](std::uint32_t from, std::uint32_t to, std::uint16_t name, TaskId before, TaskId after,
                          TaskId next_of_sender) {
        auto [entry, fresh] = sets.try_emplace({from, to});
        if (fresh) {
            entry->second.second =
                make_send(in_.fabric, in_.collectives, GpuId(out_.ranks[from]), GpuId(out_.ranks[to]), bytes, in_.paths,
                          (static_cast<std::uint64_t>(from) << 32) | to);
            entry->second.first = demand_set(entry->second.second);
        }
        const TaskId id = transfer(from, kSendStream, name, Category::pipeline_communication,
                                   entry->second.second.latency, entry->second.first, bytes);
        graph.add_edge(before, id);
        graph.add_edge(id, after);
        if (!plan.overlap_pipeline && next_of_sender.valid()) {
            graph.add_edge(id, next_of_sender);
        }
    };
    for (std::uint32_t stage = 0; stages_ > 1 && stage < stages_; ++stage) {
        for (std::uint32_t member = 0; member < per_stage; ++member) {
            const std::uint32_t rank = stage * per_stage + member;
            for (std::size_t i = 0; i < schedules[stage].size(); ++i) {
                const Pass& pass = schedules[stage][i];
                const std::uint32_t v = pass.chunk * stages_ + stage;
                // compute[rank][0] is the start of the step.
                const TaskId own = out_.compute[rank][i + 1];
                const TaskId next = i + 2 < out_.compute[rank].size() ? out_.compute[rank][i + 2] : TaskId();
                if (!pass.backward && v + 1 < virtual_stages) {
                    send(rank, (v + 1) % stages_ * per_stage + member, send_name, own,
                         forward_task[slot(member, v + 1, pass.micro_batch)], next);
                } else if (pass.backward && v > 0) {
                    send(rank, (v - 1) % stages_ * per_stage + member, send_back_name, own,
                         backward_task[slot(member, v - 1, pass.micro_batch)], next);
                }
            }
        }
    }

    // Gradient reductions: by chunk behind the remaining passes, or all at the end.
    std::vector<std::vector<TaskId>> reduced(rank_count);
    const double gradient_bytes = bytes_of(plan.gradient_precision);
    const CollectiveOp reduce = plan.zero >= 1 ? CollectiveOp::reduce_scatter : CollectiveOp::all_reduce;
    std::vector<double> stage_parameters(stages_, 0);
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
            stage_parameters[stage] += chunk_parameters(stage, chunk);
        }
        for (const Group& group : stage_groups[stage]) {
            const auto after = [&](std::uint32_t chunk) {
                std::vector<TaskId> tasks;
                for (const std::uint32_t member : group.members) {
                    tasks.push_back(last_backward[member][chunk]);
                }
                return tasks;
            };
            if (plan.overlap_data) {
                for (std::uint32_t c = chunks_; c-- > 0;) {
                    const TaskId id = collective(group, kReduceStream, reduce_name, reduce,
                                                 gradient_bytes * chunk_parameters(stage, c), after(c));
                    for (const std::uint32_t member : group.members) {
                        reduced[member].push_back(id);
                    }
                }
            } else {
                const TaskId id = collective(group, kReduceStream, reduce_name, reduce,
                                             gradient_bytes * stage_parameters[stage], after(0));
                for (const std::uint32_t member : group.members) {
                    reduced[member].push_back(id);
                }
            }
        }
    }
    // The two ends of a pipeline keep their copies of a shared embedding equal.
    if (stages_ > 1 && in_.model.tied_embeddings) {
        const std::uint16_t tie_name = graph.name("reduce embedding gradients");
        for (std::uint32_t member = 0; member < per_stage; ++member) {
            const std::uint32_t first = member;
            const std::uint32_t last = (stages_ - 1) * per_stage + member;
            Group group{{first, last}, {GpuId(out_.ranks[first]), GpuId(out_.ranks[last])}};
            std::vector<TaskId> after = {out_.compute[first].back(), out_.compute[last].back()};
            for (const std::uint32_t rank : {first, last}) {
                after.insert(after.end(), reduced[rank].begin(), reduced[rank].end());
            }
            const TaskId id = collective(group, kReduceStream, tie_name, CollectiveOp::all_reduce,
                                         gradient_bytes * in_.model.embedding_parameters() / tensor_, after);
            reduced[first].push_back(id);
            reduced[last].push_back(id);
        }
    }
    finish_step(reduced, stage_parameters);

    if (plan.zero >= 1 && !plan.overlap_parameters) {
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for (const Group& group : stage_groups[stage]) {
                std::vector<TaskId> after;
                for (const std::uint32_t member : group.members) {
                    after.push_back(out_.compute[member].back());
                }
                collective(group, kGatherStream, gather_name, CollectiveOp::all_gather, 2 * stage_parameters[stage],
                           after);
            }
        }
    }
}

// The norm of all gradients is a barrier; then each rank updates its weights.
void Lowering::finish_step(const std::vector<std::vector<TaskId>>& reduced,
                           const std::vector<double>& stage_parameters) {
    TaskGraph& graph = out_.graph;
    Task barrier;
    barrier.name = graph.name("norm of gradients");
    barrier.category = Category::other;
    barrier.rank = out_.ranks[0];
    const TaskId norm = graph.add(barrier);
    out_.price_of.resize(graph.size(), TrainingGraph::kNoPrice);
    const std::uint16_t optimizer_name = graph.name("optimizer");
    const std::uint32_t width = data_ * context_;
    const double shard = in_.plan.zero == 0 ? 1 : in_.plan.zero == 3 && in_.plan.shard > 0 ? in_.plan.shard : width;
    std::vector<std::uint32_t> prices;
    for (const double count : stage_parameters) {
        prices.push_back(add_price(cost_.optimizer(count / shard)));
    }
    const auto per_stage = static_cast<std::uint32_t>(out_.ranks.size() / stage_parameters.size());
    for (std::uint32_t rank = 0; rank < out_.ranks.size(); ++rank) {
        graph.add_edge(out_.compute[rank].back(), norm);
        for (const TaskId id : reduced[rank]) {
            graph.add_edge(id, norm);
        }
    }
    for (std::uint32_t rank = 0; rank < out_.ranks.size(); ++rank) {
        const TaskId id = compute(rank, optimizer_name, Category::optimizer, prices[rank / per_stage]);
        graph.add_edge(norm, id);
    }
}

// ZeRO-2/3 without a pipeline: gathers and reductions layer by layer. Unit 0 is the embedding, the last one the head.
void Lowering::build_sharded() {
    TaskGraph& graph = out_.graph;
    const PlanSpec& plan = in_.plan;
    const auto rank_count = static_cast<std::uint32_t>(out_.ranks.size());
    const auto layer_count = static_cast<std::uint32_t>(in_.model.layers);
    const std::uint32_t units = layer_count + 2;
    const std::uint16_t forward_name = graph.name("forward");
    const std::uint16_t backward_name = graph.name("backward");
    const std::uint16_t gather_name = graph.name("gather weights");
    const std::uint16_t reduce_name = graph.name("reduce gradients");
    const std::uint16_t replica_name = graph.name("reduce over replicas");
    const std::uint32_t width = data_ * context_;
    const std::uint32_t shard = plan.shard > 0 ? static_cast<std::uint32_t>(plan.shard) : width;
    const std::vector<Group> shards = groups(0, shard, false);
    const std::vector<Group> replicas = shard < width ? groups(0, shard, true) : std::vector<Group>();

    const auto unit_parameters = [&](std::uint32_t unit) {
        if (unit == 0 || unit == units - 1) {
            return unit == units - 1 && in_.model.tied_embeddings ? 0.0 : in_.model.embedding_parameters() / tensor_;
        }
        return in_.model.layer_parameters() / tensor_;
    };
    const auto unit_price = [&](std::uint32_t unit, bool backward) {
        Price price;
        if (unit == 0) {
            price = backward ? cost_.embedding_backward() : cost_.embedding_forward();
        } else if (unit == units - 1) {
            price = backward ? cost_.head_backward() : cost_.head_forward();
        } else {
            price = backward ? cost_.layer_backward() : cost_.layer_forward();
        }
        out_.hardware_flops += price.flops * micro_batches_;
        return add_price(price);
    };
    std::vector<std::uint32_t> forward_price;
    std::vector<std::uint32_t> backward_price;
    for (std::uint32_t unit = 0; unit < units; ++unit) {
        forward_price.push_back(unit_price(unit, false));
        backward_price.push_back(unit_price(unit, true));
    }
    Price start;
    start[Category::overhead] = in_.software.step_overhead.value;
    const std::uint32_t start_price = add_price(start);
    for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
        compute(rank, graph.name("start of step"), Category::overhead, start_price);
    }
    // A transfer of each group and size is planned once.
    std::map<std::pair<const Group*, std::pair<int, double>>, std::pair<std::uint32_t, GroupTransfer>> planned;
    const auto launch = [&](const Group& group, std::uint8_t stream, std::uint16_t name, CollectiveOp op, double bytes,
                            const std::vector<TaskId>& after) {
        auto [entry, fresh] = planned.try_emplace({&group, {static_cast<int>(op), bytes}});
        if (fresh) {
            entry->second.second = group_transfer(op, group, bytes);
            entry->second.first = demand_set(entry->second.second);
        }
        const GroupTransfer& what = entry->second.second;
        const double latency = what.latency * static_cast<double>(in_.software.gathers_per_layer);
        const TaskId id = transfer(group.members[0], stream, name, Category::data_communication, latency,
                                   entry->second.first, what.bytes);
        for (const std::uint32_t member : group.members) {
            in_order(member, stream, id);
        }
        for (const TaskId task : after) {
            graph.add_edge(task, id);
        }
        return id;
    };
    const double gradient_bytes = bytes_of(plan.gradient_precision);
    std::vector<std::vector<TaskId>> reduced(rank_count);
    const auto per_rank = [&](const Group& group, const std::vector<std::vector<TaskId>>& done, std::size_t index) {
        std::vector<TaskId> tasks;
        for (const std::uint32_t member : group.members) {
            tasks.push_back(done[member][index]);
        }
        return tasks;
    };
    for (std::uint32_t m = 0; m < micro_batches_; ++m) {
        for (const bool backward : {false, true}) {
            const bool gathers = plan.zero >= 3 || (m == 0 && !backward);
            std::vector<std::vector<TaskId>> done(rank_count);  // passes of this sweep, in order
            std::vector<std::vector<TaskId>> scattered_before(rank_count);
            for (std::uint32_t step = 0; step < units; ++step) {
                const std::uint32_t unit = backward ? units - 1 - step : step;
                std::vector<std::vector<TaskId>> inputs(rank_count);
                if (backward && !plan.overlap_data) {
                    inputs = scattered_before;
                }
                for (const Group& group : shards) {
                    if (gathers && unit_parameters(unit) > 0) {
                        // With overlap, at most two gathered units ahead of the computation (rate limiter of FSDP);
                        // without, a unit is gathered when the one before it is done.
                        const std::uint32_t ahead = plan.overlap_data ? 2 : 1;
                        const std::vector<TaskId> after =
                            step >= ahead ? per_rank(group, done, step - ahead) : std::vector<TaskId>();
                        const TaskId id = launch(group, kGatherStream, gather_name, CollectiveOp::all_gather,
                                                 2 * unit_parameters(unit), after);
                        for (const std::uint32_t member : group.members) {
                            inputs[member].push_back(id);
                        }
                    }
                }
                for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
                    const TaskId id = compute(rank, backward ? backward_name : forward_name,
                                              backward ? Category::backward : Category::forward,
                                              (backward ? backward_price : forward_price)[unit]);
                    for (const TaskId input : inputs[rank]) {
                        graph.add_edge(input, id);
                    }
                    done[rank].push_back(id);
                }
                if (!backward || unit_parameters(unit) == 0) {
                    continue;
                }
                const bool last = m + 1 == micro_batches_;
                std::vector<TaskId> scattered(rank_count);
                for (const Group& group : shards) {
                    const TaskId id = launch(group, kReduceStream, reduce_name, CollectiveOp::reduce_scatter,
                                             gradient_bytes * unit_parameters(unit), per_rank(group, done, step));
                    for (const std::uint32_t member : group.members) {
                        scattered[member] = id;
                        scattered_before[member] = {id};
                        if (last) {
                            reduced[member].push_back(id);
                        }
                    }
                }
                for (const Group& group : replicas) {
                    if (!last) {
                        break;
                    }
                    std::vector<TaskId> after;
                    for (const std::uint32_t member : group.members) {
                        after.push_back(scattered[member]);
                    }
                    const TaskId id = launch(group, kReduceStream, replica_name, CollectiveOp::all_reduce,
                                             gradient_bytes * unit_parameters(unit) / shard, after);
                    for (const std::uint32_t member : group.members) {
                        reduced[member].push_back(id);
                    }
                }
            }
        }
    }
    const double total = in_.model.parameters() / tensor_;
    finish_step(reduced, {total});
}

}  // namespace

std::vector<std::uint32_t> split_layers(std::int64_t layers, std::int64_t chunks) {
    const bool ends_count = layers % chunks != 0 && (layers + 2) % chunks == 0 && chunks > 1;
    const std::int64_t total = ends_count ? layers + 2 : layers;
    std::vector<std::uint32_t> out(static_cast<std::size_t>(chunks), static_cast<std::uint32_t>(total / chunks));
    for (std::int64_t i = 0; i < total % chunks; ++i) {
        ++out[static_cast<std::size_t>(i)];
    }
    if (ends_count) {
        --out.front();
        --out.back();
    }
    return out;
}

TrainingGraph lower(const TrainingInput& input) {
    return Lowering(input).build();
}

std::vector<MemoryUse> memory_by_stage(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software) {
    const auto stages = static_cast<std::uint32_t>(plan.pipeline);
    const std::uint32_t chunks =
        plan.schedule == ScheduleKind::interleaved ? static_cast<std::uint32_t>(plan.chunks) : 1;
    const std::vector<std::uint32_t> layers = split_layers(model.layers, static_cast<std::int64_t>(stages) * chunks);
    std::vector<MemoryUse> out;
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
        double count = 0;
        for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
            count += layers[chunk * stages + stage];
        }
        const auto passes =
            schedule_of(plan.schedule, stages, chunks, static_cast<std::uint32_t>(plan.micro_batches()), stage);
        out.push_back(memory_of(model, plan, software, count, stage == 0, stage + 1 == stages, peak_in_flight(passes)));
    }
    return out;
}

}  // namespace orrery
