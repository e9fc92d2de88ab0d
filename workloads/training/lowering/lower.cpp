#include "workloads/training/lowering/lower.hpp"

#include "sim/base/error.hpp"
#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/lowering/lowering.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::training {

Lowering::Lowering(const TrainingInput& input, RankCopies ranks)
    : in_(input),
      one_rank_(ranks != RankCopies::each),
      copies_(ranks == RankCopies::copies),
      order_(input.plan),
      tensor_(static_cast<std::uint32_t>(input.plan.tensor)),
      context_(static_cast<std::uint32_t>(input.plan.context)),
      data_(static_cast<std::uint32_t>(input.plan.data)),
      stages_(static_cast<std::uint32_t>(input.plan.pipeline)),
      chunks_(static_cast<std::uint32_t>(input.plan.chunks)),
      micro_batches_(static_cast<std::uint32_t>(input.plan.micro_batches())) {
    add_costs();
    choose_block();
    require_size();
    list_ranks();
    label({});
    if (copies_) {
        out_.graph.set_copies(ranks_of_block());
    }
}

double TrainingInput::memory_of_stage(std::int64_t stage) const {
    double least = gpu.memory.value;
    for (std::int64_t replica = 0; replica < plan.data && !groups.empty(); ++replica) {
        const double own = groups[fabric.group_of(first_gpu(stage, replica))].gpu->memory.value;
        least = replica == 0 ? own : std::min(least, own);
    }
    return least;
}

void Lowering::label(const TaskLabel& of) {
    label_ = known_labels_.number_of(of, out_.labels);
}

// Ranks are of as many kinds as groups of nodes hold some.
void Lowering::add_costs() {
    const auto add = [&](const GroupDevice& of, std::uint32_t stage, std::uint32_t replica,
                         const MicroBatchLoad* load = nullptr) {
        costs_.emplace_back(in_.model, in_.plan, in_.software, *of.device, *of.gpu, in_.fabric, *of.collectives,
                            in_.paths, in_.priced(stage, replica), load);
    };
    if (in_.documents != nullptr) {
        kind_of_ = {0};
        for (const MicroBatchLoad& load : in_.documents->loads) {
            add({&in_.device, &in_.gpu, &in_.collectives}, 0, 0, &load);
        }
        return;
    }
    if (in_.groups.empty()) {
        kind_of_ = {0};
        add({&in_.device, &in_.gpu, &in_.collectives}, 0, 0);
        return;
    }
    constexpr std::uint32_t kNone = 0xFFFFFFFFU;
    kind_of_.assign(in_.groups.size(), kNone);
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        for (std::uint32_t replica = 0; replica < data_; ++replica) {
            const GpuId first = in_.first_gpu(stage, replica);
            std::uint32_t& kind = kind_of_[in_.fabric.group_of(first)];
            if (kind == kNone) {
                kind = static_cast<std::uint32_t>(costs_.size());
                add(in_.groups[in_.fabric.group_of(first)], stage, replica);
            }
        }
    }
}

// Some 20 bytes for each copy of a task, about 60 for one with its edges: refuse what would not fit into the memory of an ordinary
// machine.
void Lowering::require_size() const {
    constexpr double kMostTasks = 2e8;
    const bool by_unit = in_.plan.zero == 3 || in_.plan.by_layer();
    const double of_unit = in_.plan.has<OffloadPlan>() ? 16 : 5;
    const double units = static_cast<double>(in_.model.encoder.layers + in_.model.layers + 2);
    const double passes = by_unit ? of_unit * units / stages_ : 4.0 * chunks_;
    const std::uint32_t ranks = copies_ ? ranks_of_block() : per_stage();
    const double tasks = passes * micro_batches_ * stages_ * ranks;
    if (tasks > kMostTasks) {
        throw InfeasibleError(
            fmt::format("the iteration has about {:.3g} tasks ({} ranks with {} micro-batches each); the "
                        "limit is {:.3g}: use a larger micro_batch, or a plan that folds",
                        tasks, stages_ * ranks, micro_batches_, kMostTasks));
    }
}

std::optional<TrainingGraph> Lowering::build() {
    if (one_rank_ && !alike_) {
        return std::nullopt;
    }
    add_crossings();
    add_tasks();
    join_rings();
    add_hosts();
    if (one_rank_ && !(copies_ ? alike_ : fold_ranks())) {
        return std::nullopt;
    }
    out_.graph.freeze();
    out_.stages = stages_;
    out_.ranks_per_stage = copies_ ? ranks_of_block() : per_stage();
    out_.folded_into_one = data_ / block_ * (copies_ ? 1 : ranks_in_one());
    if (copies_) {
        std::vector<std::uint32_t> all;
        for (const std::uint32_t first : out_.ranks) {
            for (std::uint32_t i = 0; i < ranks_of_block(); ++i) {
                all.push_back(first + i);
            }
        }
        out_.ranks = std::move(all);
    }
    ORRERY_ASSERT(out_.ranks.size() == std::size_t{out_.stages} * out_.ranks_per_stage);
    return std::move(out_);
}

std::vector<TaskId> TrainingGraph::stream(std::size_t rank) const {
    const std::size_t copies = graph.copies();
    std::vector<TaskId> out = compute[rank / copies];
    for (TaskId& id : out) {
        id = graph.copy_of(id, static_cast<std::uint32_t>(rank % copies));
    }
    return out;
}

bool Lowering::fold_ranks() {
    auto folded = folding_.fold(in_.fabric);
    for (std::size_t i = 0; folded && i < folded->size(); ++i) {
        out_.graph.replace_demands((*folded)[i].set, std::move((*folded)[i].demands));
    }
    return folded.has_value();
}

void Lowering::choose_block() {
    const bool unlike = in_.documents != nullptr && in_.documents->loads.size() > 1;
    block_ = unlike ? data_ : std::min(data_, folding_set(in_) * (1 + in_.unlike));
}

void Lowering::list_ranks() {
    kept_nodes_.assign(in_.fabric.shape().nodes, block_ == data_);
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        for (std::uint32_t replica = 0; replica < block_; ++replica) {
            for (std::uint32_t member = 0; member < per_replica(); ++member) {
                const std::uint32_t rank = order_.rank({stage, replica, member});
                const std::uint32_t kind = kind_of_[in_.fabric.group_of(in_.placement.gpu(rank))];
                kept_nodes_[in_.fabric.node_of(in_.placement.gpu(rank))] = true;
                if (one_rank_ && replica + member > 0) {
                    alike_ = alike_ && kind == rank_kind_.back();
                    continue;
                }
                out_.ranks.push_back(rank);
                rank_kind_.push_back(kind);
            }
        }
    }
    out_.compute.resize(out_.ranks.size());
    last_.assign(out_.ranks.size() * kStreamCount, TaskId());
}

TaskId Lowering::in_order(std::uint32_t rank, std::uint8_t stream, TaskId id) {
    TaskId& last = last_[rank * kStreamCount + stream];
    if (last.valid()) {
        out_.graph.add_edge(last, id);
    }
    last = id;
    return id;
}

// The price on a rank that may be slow: its kernels take longer, its collectives only wait for them.
std::uint32_t Lowering::price_on(std::uint32_t rank, std::uint32_t price) {
    if (in_.slow.empty()) {
        return price;
    }
    double factor = 1;
    for (const SlowRank& slow : in_.slow) {
        if (slow.rank / per_replica() == out_.ranks[rank] / per_replica()) {
            factor = std::min(factor, slow.factor);
        }
    }
    if (factor == 1) {
        return price;
    }
    const auto [found, added] = slow_prices_.try_emplace({price, factor}, 0);
    if (added) {
        Price slow = out_.prices[price];
        for (const Category kernels :
             {Category::forward, Category::backward, Category::recompute, Category::optimizer}) {
            slow[kernels] /= factor;
        }
        found->second = static_cast<std::uint32_t>(out_.prices.size());
        out_.prices.push_back(slow);
    }
    return found->second;
}

TaskId Lowering::compute(std::uint32_t rank, std::uint16_t name, Category category, std::uint32_t price) {
    price += kind_on(rank);
    if (!crossings_.empty()) {
        const PassParts& parts = parts_of(price, rank_kind_[rank]);
        if (!parts.exchanges.empty()) {
            return compute_beside(rank, name, category, parts);
        }
    }
    return add_compute(rank, name, category, price_on(rank, price));
}

TaskId Lowering::add_compute(std::uint32_t rank, std::uint16_t name, Category category, std::uint32_t price) {
    Task task;
    ORRERY_ASSERT(price < out_.prices.size());
    task.duration = SimTime::from_seconds(out_.prices[price].total());
    task.rank = out_.ranks[rank];
    task.name = name;
    task.stream = kComputeStream;
    task.category = category;
    task.label = label_;
    const TaskId id = in_order(rank, kComputeStream, out_.graph.add(task));
    out_.price_at.resize(out_.graph.size(), TrainingGraph::kNoPrice);
    out_.price_at[id.value()] = price;
    out_.compute[rank].push_back(id);
    return id;
}

TaskId Lowering::transfer(std::uint32_t rank, std::uint8_t stream, std::uint16_t name, Category category,
                          double latency, std::uint32_t demand_set, double bytes) {
    Task task;
    task.duration = SimTime::from_seconds(latency);
    task.rank = out_.ranks[rank];
    task.name = name;
    task.stream = stream;
    task.category = category;
    task.label = label_;
    const TaskId id = out_.graph.add_activity(task, demand_set, bytes);
    out_.price_at.resize(out_.graph.size(), TrainingGraph::kNoPrice);
    return id;
}

GroupTransfer Lowering::plan_transfer(CollectiveOp op, const Group& group, double bytes) const {
    const auto make = [&](const CollectiveModel& library) {
        return make_transfer(in_.fabric, library, op, group.gpus, Bytes(bytes), in_.paths,
                             block_ == data_ ? nullptr : &kept_nodes_);
    };
    if (in_.groups.empty()) {
        return make(in_.collectives);
    }
    // Where the curves of several groups apply, the slowest holds all.
    GroupTransfer slowest;
    std::vector<const CollectiveModel*> tried;
    for (const GpuId gpu : group.gpus) {
        const CollectiveModel* library = in_.groups[in_.fabric.group_of(gpu)].collectives;
        if (std::find(tried.begin(), tried.end(), library) != tried.end()) {
            continue;
        }
        tried.push_back(library);
        GroupTransfer one = make(*library);
        if (tried.size() == 1 || seconds_alone(in_.fabric, slowest) < seconds_alone(in_.fabric, one)) {
            slowest = std::move(one);
        }
    }
    return slowest;
}

Alone Lowering::alone(CollectiveOp op, const Group& group, double bytes) const {
    const auto ranks = static_cast<std::uint32_t>(group.gpus.size());
    return {seconds_alone(in_.fabric, plan_transfer(op, group, bytes)).value(),
            memory_bytes(op, ranks, Bytes(bytes)).value()};
}

// While both run the kernels lose a share of their speed; a pass shorter than the collectives loses it all along. What memory binds
// of a pass is slower by what both ask of it together.
double Lowering::lost_to(const Alone& busy, const Price& pass) const {
    const double total = pass.total();
    if (total <= 0) {
        return 0;
    }
    const double left = 1 - cost().communication_share();
    const double bound = std::min(1.0, pass.memory_bound / total);
    const double memory = pass.memory_bound > 0 ? pass.memory / pass.memory_bound : 0;
    double streams = speed_on(left, 1);
    streams /= std::max(1.0, memory * streams + busy.share_of(cost().memory_rate()));
    const double speed = 1 / ((1 - bound) / left + bound / streams);
    return (1 - speed) * std::min(busy.seconds, total / speed);
}

TaskId Lowering::collective(const Group& group, std::uint8_t stream, std::uint16_t name, const GroupTransfer& planned,
                            std::uint32_t demand_set, const std::vector<TaskId>& after) {
    ORRERY_ASSERT(!group.members.empty());
    const TaskId id = transfer(group.members[0], stream, name, Category::data_communication,
                               planned.latency_before(in_.routes_flows).value(), demand_set, planned.bytes.value());
    if (copies_) {
        out_.graph.set_partition(id, group.partition);
    }
    for (const std::uint32_t member : group.members) {
        in_order(member, stream, id);
    }
    for (const TaskId task : after) {
        out_.graph.add_edge(task, id);
    }
    return id;
}

TaskId Lowering::collective(const Group& group, std::uint8_t stream, std::uint16_t name, CollectiveOp op, double bytes,
                            const std::vector<TaskId>& after) {
    const GroupTransfer planned = plan_transfer(op, group, bytes);
    return collective(group, stream, name, planned, demands_of(op, group, bytes, planned), after);
}

std::uint32_t Lowering::demands_of(CollectiveOp op, const Group& group, double bytes, const GroupTransfer& planned) {
    if (copies_) {
        std::vector<GroupTransfer> all;
        for (const std::vector<GpuId>& gpus : group.alike) {
            all.push_back(plan_transfer(op, Group{{}, gpus}, bytes));
        }
        return demands_of_copies(all, known_demands_[{group.gpus.front().value(), static_cast<int>(op)}]);
    }
    const std::uint32_t set = out_.graph.add_demands(planned.demands, ResourceModel::kUnbounded, planned.flows);
    if (one_rank_) {
        folding_.begin(set, planned);
        for (std::size_t i = 1; i < group.alike.size(); ++i) {
            folding_.add(plan_transfer(op, Group{{}, group.alike[i]}, bytes));
        }
    }
    return set;
}

std::uint32_t Lowering::demands_of_copies(const std::vector<GroupTransfer>& all, std::vector<std::uint32_t>& known) {
    ORRERY_ASSERT(!all.empty());
    for (const GroupTransfer& one : all) {
        alike_ = alike_ && one.latency_before(in_.routes_flows) == all[0].latency_before(in_.routes_flows) &&
                 one.bytes == all[0].bytes;
    }
    // What groups of many demand is as large as they are, and mostly the same for all sizes.
    const auto is_of = [&](std::uint32_t set) {
        return set + all.size() <= out_.graph.demand_set_count() &&
               std::all_of(all.begin(), all.end(), [&](const GroupTransfer& one) {
                   const std::span<const Demand> held = out_.graph.demands(set++);
                   return std::equal(held.begin(), held.end(), one.demands.begin(), one.demands.end());
               });
    };
    const bool flows = in_.routes_flows || in_.keep_flows;
    const auto found = flows ? known.end() : std::find_if(known.begin(), known.end(), is_of);
    if (found != known.end()) {
        return *found;
    }
    known.push_back(static_cast<std::uint32_t>(out_.graph.demand_set_count()));
    for (const GroupTransfer& one : all) {
        out_.graph.add_demands(one.demands, ResourceModel::kUnbounded, flows ? one.flows : std::vector<RoutedFlow>());
    }
    return known.back();
}

std::uint32_t Lowering::demands_of_send(std::uint32_t from, std::uint32_t to, const GroupTransfer& planned) {
    if (copies_) {
        std::vector<GroupTransfer> all;
        for (std::uint32_t i = 0; i < ranks_of_block(); ++i) {
            all.push_back(planned_send(gpu_of(from, i), gpu_of(to, i), send_hash(from, to, i)));
        }
        std::vector<std::uint32_t> none;
        return demands_of_copies(all, none);
    }
    const std::uint32_t set = out_.graph.add_demands(planned.demands, ResourceModel::kUnbounded, planned.flows);
    if (one_rank_) {  // and a simulated rank is that of its stage
        folding_.begin(set, planned);
        for (std::uint32_t i = 1; i < ranks_of_block(); ++i) {
            folding_.add(planned_send(gpu_of(from, i), gpu_of(to, i), 0));
        }
    }
    return set;
}

Lowering::Group Lowering::across_stages(std::vector<std::uint32_t> ranks) const {
    Group out;
    for (const std::uint32_t rank : ranks) {
        out.gpus.push_back(in_.placement.gpu(out_.ranks[rank]));
    }
    for (std::uint32_t i = 0; one_rank_ && i < ranks_of_block(); ++i) {
        out.alike.emplace_back();
        for (const std::uint32_t stage : ranks) {
            out.alike.back().push_back(gpu_of(stage, i));
        }
    }
    out.members = std::move(ranks);
    return out;
}

// `members`: so far by rank of the simulated replicas. Of one rank of each stage, its group stands for those of all of them.
void Lowering::add_simulated(std::vector<Group>& groups, Group group) const {
    if (group.members.empty()) {
        return;
    }
    if (one_rank_) {
        const std::uint32_t stage = group.members.front() / ranks_of_block();
        if (group.members.front() % ranks_of_block() > 0) {
            for (const std::uint32_t member : group.members) {
                groups.front().cell_of[member % ranks_of_block()] =
                    static_cast<std::uint32_t>(groups.front().alike.size());
            }
            groups.front().alike.push_back(std::move(group.gpus));
            return;
        }
        group.alike = {group.gpus};
        group.cell_of.assign(ranks_of_block(), 0);
        group.members = {stage};
    }
    groups.push_back(std::move(group));
}

// A partition numbers its cells by their first members; groups were made tensor rank by tensor rank.
void Lowering::add_partitions(std::vector<Group>& groups) {
    for (Group& group : groups) {
        if (copies_ && !group.cell_of.empty()) {
            const std::uint32_t unseen = ranks_of_block();
            std::vector<std::uint32_t> numbered(group.alike.size(), unseen);
            std::vector<std::vector<GpuId>> alike;
            for (std::uint32_t& cell : group.cell_of) {
                if (numbered[cell] == unseen) {
                    numbered[cell] = static_cast<std::uint32_t>(alike.size());
                    alike.push_back(std::move(group.alike[cell]));
                }
                cell = numbered[cell];
            }
            group.alike = std::move(alike);
            group.partition = out_.graph.add_partition(group.cell_of);
        }
    }
}

std::vector<Lowering::Group> Lowering::spans(std::uint32_t stage, std::uint32_t from, std::uint32_t to, bool alone) {
    std::vector<Group> out;
    ORRERY_ASSERT(from > 0 && to % from == 0);
    const RankMap simulated = order_.with_replicas(block_);
    for (std::uint32_t t = 0; t < tensor_; ++t) {
        for (std::uint32_t g = 0; g < data_ * context_ / to * from; ++g) {
            Group group;
            for (std::uint32_t i = 0; i < to / from; ++i) {
                const std::uint32_t index = g / from * to + g % from + i * from;
                const std::uint32_t replica = index / context_;
                const std::uint32_t member = order_.member(index % context_, t);
                group.gpus.push_back(in_.placement.gpu(order_.rank({stage, replica, member})));
                if (replica < block_) {
                    group.members.push_back(simulated.rank({stage, replica, member}));
                }
            }
            if (group.gpus.size() > (alone ? 0 : 1)) {
                add_simulated(out, std::move(group));
            }
        }
    }
    add_partitions(out);
    return out;
}

// The host of each rank launches pass after pass, ahead of its device where it is faster; what a pass releases waits for both.
void Lowering::add_hosts() {
    if (host_waits() || in_.software.blocking_launches) {
        return;  // it starts each pass, or each kernel, with the device: part of the pass's price
    }
    // What starts the step is the host's own time. Its launches follow, and it never makes its device wait where they so far never
    // take longer than the passes so far.
    const auto launch_seconds = [&](std::uint32_t rank, TaskId pass) {
        const Price& price = out_.prices[out_.price_at[pass.value()]];
        return host_seconds(price) + (pass == out_.compute[rank].front() ? price.total() : 0);
    };
    bool waits = false;
    for (std::uint32_t rank = 0; rank < rank_count() && !waits; ++rank) {
        double ahead = 0;
        for (const TaskId pass : out_.compute[rank]) {
            const auto exposed = exposed_.find(pass.value());
            ahead += exposed == exposed_.end() ? 0 : exposed->second;
            ahead += out_.prices[out_.price_at[pass.value()]].total() - launch_seconds(rank, pass);
            waits = waits || ahead < 0;
        }
    }
    if (!waits) {
        return;
    }
    std::vector<std::pair<TaskId, TaskId>> pairs;
    const std::uint16_t name = out_.graph.name("launch kernels");
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        for (const TaskId pass : out_.compute[rank]) {
            if (!crossings_.empty() && out_.price_at[pass.value()] == nothing_) {
                continue;
            }
            Task task;
            task.duration = SimTime::from_seconds(launch_seconds(rank, pass));
            task.rank = out_.ranks[rank];
            task.name = name;
            task.stream = kHostStream;
            task.category = Category::overhead;
            task.label = out_.graph.task(pass).label;
            pairs.emplace_back(pass, in_order(rank, kHostStream, out_.graph.add(task)));
        }
    }
    out_.graph.add_companions(pairs);
}

std::vector<Lowering::Group> Lowering::expert_groups(std::uint32_t stage, bool alone) {
    std::vector<Group> out;
    const auto copies = static_cast<std::uint32_t>(in_.plan.expert_data());
    if (in_.model.experts.count == 0 || copies < (alone ? 1 : 2)) {
        return out;
    }
    const std::uint32_t ranks = order_.per_stage();
    const std::uint32_t apart = ranks / copies;
    ORRERY_ASSERT(apart * copies == ranks);
    for (std::uint32_t place = 0; place < apart; ++place) {
        Group group;
        for (std::uint32_t rank = place; rank < ranks; rank += apart) {
            group.gpus.push_back(in_.placement.gpu(stage * ranks + rank));
            if (rank < ranks_of_block()) {
                group.members.push_back(stage * ranks_of_block() + rank);
            }
        }
        add_simulated(out, std::move(group));
    }
    add_partitions(out);
    return out;
}

double Lowering::tables_of(bool first, bool last) const {
    if (in_.plan.vocabulary != VocabularyParallel::none) {
        return 0;  // cut over all stages
    }
    const bool meet = (first && last) || (stages_ > 1 && in_.plan.ends_meet());
    const bool shared = meet && in_.model.tied_embeddings;
    return (first ? 1 : 0) + (last && !shared ? 1 : 0);
}

RankWeights Lowering::parameters(Layers layers, double tables) const {
    LayerMix mix = mix_of(in_.model, layers.first, layers.count);
    mix.encoder = layers.encoder;
    mix.projector = layers.projector ? 1 : 0;
    return weights_of(in_.model, in_.plan, mix, tables);
}

Lowering::Layers Lowering::with_encoder(Layers layers, bool front) const {
    if (front && in_.model.encoder.given()) {
        layers.encoder = static_cast<std::uint32_t>(in_.model.encoder.layers);
        layers.projector = true;
    }
    return layers;
}

Price Lowering::chunk_price(Layers layers, bool first, bool last, PassWork work) const {
    struct Parts {
        const Price& (PassCost::*layer)(LayerKind) const;
        const Price* embedding;  ///< of the first; its gradient is of weights alone
        const Price* head;       ///< of the last
    };
    const auto parts = [&]() -> Parts {
        switch (work) {
            case PassWork::forward:
                return {&PassCost::layer_forward, &cost().embedding_forward(), &cost().head_forward()};
            case PassWork::backward:
                return {&PassCost::layer_backward, &cost().embedding_backward(), &cost().head_backward()};
            case PassWork::input_gradient:
                return {&PassCost::layer_input_gradient, nullptr, &cost().head_input_gradient()};
            default:
                break;
        }
        return {&PassCost::layer_weight_gradient, &cost().embedding_backward(), &cost().head_weight_gradient()};
    }();
    Price price;
    for (std::size_t i = 0; i < LayerKind::kCount; ++i) {
        const LayerKind kind = LayerKind::at(i);
        const auto count = static_cast<double>(in_.model.layers_of(kind, layers.first, layers.count));
        if (count > 0) {
            price += (cost().*parts.layer)(kind)*count;
        }
    }
    if (layers.encoder > 0) {
        price += cost().encoder(EncoderPart::layer, work) * layers.encoder;
    }
    if (layers.projector) {
        price += cost().encoder(EncoderPart::patches, work);
        price += cost().encoder(EncoderPart::projector, work);
    }
    if (in_.plan.vocabulary != VocabularyParallel::none) {
        return launched(last ? price += cost().final_norm(work != PassWork::forward)
                             : price);  // tables are passes of their own
    }
    if (first && parts.embedding != nullptr) {
        price += *parts.embedding;
    }
    if (last) {
        price += *parts.head;
    }
    return launched(price);
}

void Lowering::start_step() {
    // While a device replays an iteration as one graph the host has nothing to launch, and prepares the next step.
    Price start;
    start[Category::overhead] = in_.software.graphs == CudaGraphs::iteration ? 0 : in_.software.step_overhead.value;
    const std::uint32_t price = add_prices([&] { return start; });
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        compute(rank, out_.graph.name("start of step"), Category::overhead, price);
    }
}

// Tensor-parallel ranks sum the gradients of what they all have of the adapters.
void Lowering::sum_adapters(const std::vector<RankWeights>& stage_parameters) {
    const AdapterWeights layer = adapter_weights(in_.model, in_.plan);
    ORRERY_ASSERT(layer.shared <= layer.all);
    const std::uint16_t name = out_.graph.name("sum gradients of adapters");
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        const double weights = stage_parameters[stage].dense * layer.shared / layer.all;
        const std::uint32_t price = add_prices([&] { return cost().gradient_sum(weights); });
        for (std::uint32_t rank = stage * per_stage(); rank < (stage + 1) * per_stage(); ++rank) {
            compute(rank, name, Category::tensor_communication, price);
        }
    }
}

void Lowering::finish_step(const TaskLists& reduced, const std::vector<RankWeights>& stage_parameters) {
    ORRERY_ASSERT(reduced.size() == rank_count() && stage_parameters.size() == stages_);
    TaskGraph& graph = out_.graph;
    Task barrier;
    barrier.name = graph.name("norm of gradients");
    barrier.category = Category::other;
    barrier.rank = out_.ranks[0];
    const TaskId norm = graph.add(barrier);
    if (copies_) {
        graph.set_partition(norm, TaskGraph::kTogether);
    }
    const PlanSpec& plan = in_.plan;
    // Where stages begin the next iteration one after another they take the step and check the norm behind it: each waits for its
    // own gradients alone.
    const bool all_wait = !plan.schedule->staggers || stages_ == 1;
    if (plan.has<AdapterPlan>() && plan.tensor > 1) {
        sum_adapters(stage_parameters);
    }
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        graph.add_edge(out_.compute[rank].back(), norm);
        for (const TaskId id : reduced[rank]) {
            graph.add_edge(id, norm);
        }
    }
    const std::uint16_t name = graph.name("optimizer");
    out_.weights = stage_parameters;
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        const std::uint32_t price = add_prices([&] {
            const RankWeights& weights = stage_parameters[stage];
            return cost().optimizer(updated_weights(plan, weights), weights.total());
        });
        for (std::uint32_t rank = stage * per_stage(); rank < (stage + 1) * per_stage(); ++rank) {
            const TaskId step = compute(rank, name, Category::optimizer, price);
            if (all_wait) {
                graph.add_edge(norm, step);
                continue;
            }
            for (const TaskId id : reduced[rank]) {
                graph.add_edge(id, step);
            }
        }
    }
}

// Replicas that share nodes among themselves and with nobody else.
std::uint32_t folding_set(const TrainingInput& in) {
    const std::uint32_t gpus = in.fabric.gpus_per_domain();
    const auto data = static_cast<std::uint32_t>(in.plan.data);
    for (std::int64_t stage = 0; stage < in.plan.pipeline && !in.groups.empty(); ++stage) {
        for (std::int64_t replica = 1; replica < in.plan.data; ++replica) {
            if (in.fabric.group_of(in.first_gpu(stage, replica)) != in.fabric.group_of(in.first_gpu(stage, 0))) {
                return data;  // replicas on unlike nodes
            }
        }
    }
    const std::uint32_t per_replica = RankMap(in.plan).per_replica();
    if (!in.fold || !in.fabric.full_bisection() || in.paths != PathChoice::spray || !in.placement.aligned(in.fabric)) {
        return data;
    }
    const std::uint32_t candidate = per_replica >= gpus ? 1 : gpus / per_replica;
    const bool whole_nodes = per_replica >= gpus ? per_replica % gpus == 0 : gpus % per_replica == 0;
    return whole_nodes && per_replica * data % gpus == 0 && data % candidate == 0 ? candidate : data;
}

// Of what makes ranks of a stage unlike, all but their transfers: those are seen as they are lowered.
static bool ranks_may_be_alike(const TrainingInput& in) {
    return in.slow.empty() && in.spells.empty() && in.unlike == 0 && in.documents == nullptr &&
           !in.plan.has<OffloadPlan>() && in.plan.stage_ranks() > 1;
}

// Outer steps go by what inner ones leave of each link.
static bool ranks_may_fold(const TrainingInput& in) {
    return in.fold && in.fabric.full_bisection() && in.paths == PathChoice::spray && !in.routes_flows && !in.in_order &&
           ranks_may_be_alike(in) && in.plan.islands() == 1;
}

TrainingGraph lower(const TrainingInput& input, const NodeMemories* memory) {
    for (const RankCopies ranks : {RankCopies::one_for_all, RankCopies::copies, RankCopies::each}) {
        if ((ranks == RankCopies::one_for_all && !ranks_may_fold(input)) ||
            (ranks == RankCopies::copies && !ranks_may_be_alike(input))) {
            continue;
        }
        std::optional<TrainingGraph> out =
            input.plan.by_layer() ? lower_sharded(input, memory, ranks) : lower_pipeline(input, ranks);
        if (out) {
            return std::move(*out);
        }
    }
    throw InternalError("an iteration of all ranks was not lowered");
}

}  // namespace orrery::training
