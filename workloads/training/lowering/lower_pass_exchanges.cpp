// Exchanges of passes that leave a node, as activities on the fabric.
//
// Claims: of what a pass exchanges on a communicator, the part that its kernels hide (by the pass's program) starts with the pass, and
// the part that they do not comes behind them. All groups of a stage do the same, each when its own ranks are there, and share links
// with each other, with sends between stages and with sums of gradients. Alone each part takes what its program says: its bytes over the
// links of its groups, and before them what the program adds to that (latencies, and what a library does not reach of the links).
// Where links between switches can be full, the program is priced with the groups of all stages; how many do exchange at once is seen here.
// Limits: a pass has one part of each for all of its layers, so what runs beside it for less than the pass meets the mean of them; bytes
// of a second of exchanges are those of one exchange of the kind that passes have most of (tensors: sums; sequences: keys and values;
// experts: tokens in 16 bits); exchanges of an encoder stay in its price.
// Validated by tests/workloads/pass_exchanges_test.cpp.

#include "sim/base/error.hpp"
#include "sim/network/group_loads.hpp"
#include "workloads/training/features/dispatcher.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/features/zeroth_order.hpp"
#include "workloads/training/lowering/lowering.hpp"
#include "workloads/training/lowering/pass_exchanges.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace orrery::training {

namespace {

struct CrossingKind {
    PassStream stream;
    Category category;
    const char* name;
};
constexpr CrossingKind kKinds[] = {
    {PassStream::tensor, Category::tensor_communication, "exchange of tensors"},
    {PassStream::context, Category::context_communication, "exchange of sequences"},
    {PassStream::expert, Category::expert_communication, "exchange with experts"},
};

bool crosses_nodes(const Fabric& fabric, const std::vector<GpuId>& group) {
    return std::any_of(group.begin(), group.end(),
                       [&](GpuId gpu) { return fabric.domain_of(gpu) != fabric.domain_of(group.front()); });
}

// Bytes that a rank sends for each second of such a collective.
double rate_of(const CollectiveModel& library, CollectiveOp op, const ConcurrentGroups& groups, double payload) {
    const double seconds = groups.seconds(library, op, Bytes(payload)).value();
    return seconds > 0 ? wire_bytes(op, static_cast<std::uint32_t>(groups.size()), Bytes(payload)).value() / seconds
                       : 0;
}

}  // namespace

bool exchanges_on_fabric(const TrainingInput& input) {
    return !input.in_order && !input.routes_flows && input.documents == nullptr && !input.plan.has<OffloadPlan>() &&
           !input.plan.has<ZerothOrderPlan>();
}

std::vector<Lowering::Group> Lowering::tensor_groups(std::uint32_t stage) {
    std::vector<Group> out;
    const RankMap simulated = order_.with_replicas(block_);
    for (std::uint32_t replica = 0; replica < data_; ++replica) {
        for (std::uint32_t c = 0; c < context_; ++c) {
            Group group;
            for (std::uint32_t t = 0; t < tensor_; ++t) {
                const std::uint32_t member = order_.member(c, t);
                group.gpus.push_back(in_.placement.gpu(order_.rank({stage, replica, member})));
                if (replica < block_) {
                    group.members.push_back(simulated.rank({stage, replica, member}));
                }
            }
            add_simulated(out, std::move(group));
        }
    }
    add_partitions(out);
    return out;
}

// Among which the experts of a layer are divided; with those among which an expert is cut where all gather all tokens.
std::vector<Lowering::Group> Lowering::exchanging_groups(std::uint32_t stage) {
    std::vector<Group> out;
    const std::uint32_t ranks = order_.per_stage();
    const auto cut = static_cast<std::uint32_t>(in_.plan.expert_tensor());
    const std::uint32_t together = cut * static_cast<std::uint32_t>(in_.plan.experts.expert);
    const std::uint32_t apart = in_.plan.experts.dispatch == TokenDispatch::all_gather ? 1 : cut;
    ORRERY_ASSERT(together > 0 && ranks % together == 0);
    for (std::uint32_t first = 0; first < ranks; ++first) {
        if (first % together >= apart) {
            continue;
        }
        Group group;
        for (std::uint32_t rank = first; rank < first - first % together + together; rank += apart) {
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

std::vector<Lowering::Group> Lowering::crossing_groups(PassStream stream, std::uint32_t stage) {
    const PlanSpec& plan = in_.plan;
    switch (stream) {
        case PassStream::tensor:
            return plan.tensor > 1 ? tensor_groups(stage) : std::vector<Group>();
        case PassStream::context: {
            const bool outer = plan.context_exchange == ContextExchange::hierarchical;
            return plan.context > 1 ? spans(stage, outer ? static_cast<std::uint32_t>(plan.head_ranks()) : 1, context_)
                                    : std::vector<Group>();
        }
        default:
            return in_.model.experts.count > 0 && plan.experts.expert > 1 ? exchanging_groups(stage)
                                                                          : std::vector<Group>();
    }
}

void Lowering::add_crossings() {
    if (!exchanges_on_fabric(in_)) {
        return;
    }
    nothing_ = static_cast<std::uint32_t>(out_.prices.size());
    out_.prices.emplace_back();
    for (const CrossingKind& kind : kKinds) {
        Crossing own;
        own.stream = kind.stream;
        own.category = kind.category;
        own.group_of.resize(rank_count());
        own.next.resize(rank_count());
        std::vector<double> loads(in_.fabric.resource_count());
        const bool all_stages = switch_links_matter(in_.fabric, in_.paths);
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for (Group& group : crossing_groups(kind.stream, stage)) {
                if (own.groups.empty() && !crosses_nodes(in_.fabric, group.gpus)) {
                    break;
                }
                for (const std::uint32_t member : group.members) {
                    own.group_of[member] = static_cast<std::uint32_t>(own.groups.size());
                }
                std::vector<double> none;
                const std::uint32_t set =
                    demands_of_crossing(kind.stream, group, stage == 0 || all_stages ? loads : none);
                own.groups.push_back({std::move(group), set, {}});
            }
            if (own.groups.empty()) {
                break;
            }
        }
        if (own.groups.empty()) {
            continue;
        }
        for (std::size_t resource = 0; resource < loads.size(); ++resource) {
            if (loads[resource] > 0) {
                own.seconds_per_byte =
                    std::max(own.seconds_per_byte, loads[resource] / in_.fabric.capacity(ResourceId(resource)));
            }
        }
        own.name = out_.graph.name(kind.name);
        for (std::uint32_t i = 0; i < costs_.size(); ++i) {
            own.bytes_per_second.push_back(std::min(crossing_rate(kind.stream, i), 1 / own.seconds_per_byte));
        }
        crossings_.push_back(std::move(own));
    }
}

// Of the exchange that passes have most of; `kind`: of rank.
double Lowering::crossing_rate(PassStream stream, std::uint32_t kind) const {
    const PlanSpec& plan = in_.plan;
    const auto first = std::find(rank_kind_.begin(), rank_kind_.end(), kind);
    ORRERY_ASSERT(first != rank_kind_.end());
    const std::uint32_t rank = out_.ranks[static_cast<std::size_t>(first - rank_kind_.begin())];
    const auto [stage, replica, member] = order_.place(rank);
    const CollectiveModel& library =
        in_.groups.empty() ? in_.collectives : *in_.groups[in_.fabric.group_of(in_.placement.gpu(rank))].collectives;
    const RankGroups groups(plan, in_.fabric, in_.paths, in_.priced(stage, replica));
    const double t = static_cast<double>(plan.tensor);
    const double tokens =
        static_cast<double>(plan.micro_batch * in_.model.sequence) / static_cast<double>(plan.context);
    constexpr double kValue = 2;  // B
    if (stream == PassStream::tensor) {
        return rate_of(library, CollectiveOp::all_reduce, groups.every(1, plan.tensor),
                       kValue * tokens * static_cast<double>(in_.model.hidden));
    }
    if (stream == PassStream::context) {
        const double keys = 2 * kValue * tokens * in_.model.kv_width() / t;
        const std::int64_t inner = plan.context_exchange == ContextExchange::hierarchical ? plan.head_ranks() : 1;
        const ConcurrentGroups all = groups.every(plan.tensor * inner, plan.context / inner);
        switch (plan.context_exchange) {
            case ContextExchange::all_gather:
                return rate_of(library, CollectiveOp::all_gather, all, keys * static_cast<double>(plan.context));
            case ContextExchange::all_to_all:
                return rate_of(library, CollectiveOp::all_to_all, all, kValue * tokens * in_.model.q_width() / t);
            default:
                return rate_of(library, CollectiveOp::send_recv, all, keys);
        }
    }
    const ExpertExchange exchange(in_.model, plan, library, groups);
    const DispatcherPlan& dispatcher = plan.feature<DispatcherPlan>();
    const ExpertLoad load = load_of(in_.model.experts, plan);
    const double own = tokens / t / static_cast<double>(plan.experts.pieces);
    // What the busiest rank receives is what its links carry.
    const double bytes = exchange.bytes_sent(own, Precision::bf16).across * std::max(1.0, load.hottest / load.kept);
    const double seconds =
        dispatcher.start() + dispatcher.seconds(exchange.dispatch(own, Precision::bf16), exchange.tokens_sent(own));
    return seconds > 0 ? bytes / seconds : 0;
}

GroupTransfer Lowering::planned_crossing(PassStream stream, const std::vector<GpuId>& group) const {
    const std::vector<bool>* kept = block_ == data_ ? nullptr : &kept_nodes_;
    const PlanSpec& plan = in_.plan;
    const bool pairs = stream == PassStream::expert
                           ? plan.experts.dispatch != TokenDispatch::all_gather
                           : stream == PassStream::context && plan.context_exchange == ContextExchange::all_to_all;
    GroupTransfer out;
    if (stream != PassStream::expert || plan.experts.dispatch != TokenDispatch::hierarchical) {
        out.demands = demands_of_group(in_.fabric, in_.paths, group, pairs, kept);
        return out;
    }
    std::map<ResourceId, double> sum;
    for (const std::vector<GpuId>& rail : rails_of(in_.fabric, group)) {
        for (const Demand& demand : demands_of_group(in_.fabric, in_.paths, rail, pairs, kept)) {
            sum[demand.resource] += demand.weight;
        }
    }
    for (const auto& [resource, weight] : sum) {
        out.demands.push_back({resource, weight});
    }
    return out;
}

// `loads`: what all of them put on each resource is added; empty: nothing is.
std::uint32_t Lowering::demands_of_crossing(PassStream stream, const Group& group, std::vector<double>& loads) {
    std::vector<GroupTransfer> all = {planned_crossing(stream, group.gpus)};
    for (std::size_t i = 1; i < group.alike.size(); ++i) {
        all.push_back(planned_crossing(stream, group.alike[i]));
    }
    for (const GroupTransfer& one : all) {
        for (const Demand& demand : one.demands) {
            if (!loads.empty()) {
                loads[demand.resource.value()] += demand.weight;
            }
        }
    }
    if (copies_) {
        std::vector<std::uint32_t> none;
        return demands_of_copies(all, none);
    }
    const std::uint32_t set = out_.graph.add_demands(all[0].demands);
    if (one_rank_) {
        folding_.begin(set, all[0]);
        for (std::size_t i = 1; i < all.size(); ++i) {
            folding_.add(all[i]);
        }
    }
    return set;
}

// Seconds of exchanges by communicator, alone, in what the label of tasks says.
std::array<double, kPassStreams> Lowering::exchanged(std::uint32_t kind) const {
    std::array<double, kPassStreams> out{};
    const TaskLabel& of = out_.labels[label_];
    const PassCost& cost = costs_[kind];
    const auto add = [&](const PassProgram& program, double times) {
        for (const PassOperation& operation : program.operations()) {
            out[static_cast<std::size_t>(operation.stream)] += times * operation.seconds;
        }
    };
    if (!of.pass || of.work == PassWork::scores || of.work == PassWork::score_gradients) {
        return out;
    }
    for (std::size_t i = 0; i < LayerKind::kCount && of.layers > 0; ++i) {
        const LayerKind layer = LayerKind::at(i);
        const auto count = in_.model.layers_of(layer, of.layer, of.layers);
        if (count > 0) {
            add(cost.program(layer, of.work), static_cast<double>(count));
        }
    }
    if (of.embedding) {
        add(cost.embedding_program(of.work), 1);
    }
    if (of.head) {
        add(cost.head_program(of.work), 1);
    }
    return out;
}

const Lowering::PassParts& Lowering::parts_of(std::uint32_t price, std::uint32_t kind) {
    const auto [found, added] = parts_.try_emplace(price);
    PassParts& out = found->second;
    if (!added) {
        return out;
    }
    Price kernels = out_.prices[price];
    const std::array<double, kPassStreams> all = exchanged(kind);
    for (std::size_t i = 0; i < crossings_.size(); ++i) {
        const Crossing& crossing = crossings_[i];
        const double seconds = all[static_cast<std::size_t>(crossing.stream)];
        const double rate = crossing.bytes_per_second[kind];
        if (seconds <= 0 || rate <= 0) {
            continue;
        }
        constexpr double kRounding = 1e-9;
        const double exposed = std::min(seconds, kernels[crossing.category]);
        const double hidden = seconds - exposed > kRounding * seconds ? seconds - exposed : 0;
        kernels[crossing.category] -= exposed;
        out.exchanges.push_back({i, hidden, exposed, 1 - rate * crossing.seconds_per_byte, rate});
    }
    if (!out.exchanges.empty()) {
        out.kernels = static_cast<std::uint32_t>(out_.prices.size());
        out_.prices.push_back(kernels);
    }
    return out;
}

TaskId Lowering::exchange(std::uint32_t rank, const PassExchange& of, double seconds, TaskId after) {
    Crossing& crossing = crossings_[of.crossing];
    CrossingGroup& own = crossing.groups[crossing.group_of[rank]];
    const std::uint32_t number = crossing.next[rank]++;
    // All ranks of a group go through the same passes in the same order; the first of them adds what they exchange together.
    ORRERY_ASSERT(number <= own.exchanges.size());
    if (number == own.exchanges.size()) {
        const TaskId id = transfer(own.group.members[0], exchange_stream(crossing.stream), crossing.name,
                                   crossing.category, seconds * of.latency, own.set, seconds * of.bytes);
        if (copies_) {
            out_.graph.set_partition(id, own.group.partition);
        }
        own.exchanges.push_back(id);
    }
    out_.graph.add_edge(after, own.exchanges[number]);
    return own.exchanges[number];
}

TaskId Lowering::mark(std::uint32_t rank, Category category) {
    const std::uint32_t own = label_;
    label_ = 0;
    const TaskId id = add_compute(rank, out_.graph.name("exchanges"), category, nothing_);
    label_ = own;
    return id;
}

TaskId Lowering::compute_beside(std::uint32_t rank, std::uint16_t name, Category category, const PassParts& parts) {
    const bool hides = std::any_of(parts.exchanges.begin(), parts.exchanges.end(),
                                   [](const PassExchange& one) { return one.hidden > 0; });
    TaskId begin = hides ? mark(rank, Category::other) : TaskId();
    const TaskId kernels = add_compute(rank, name, category, price_on(rank, parts.kernels));
    begin = hides ? begin : kernels;
    std::vector<TaskId> hidden;
    for (const PassExchange& one : parts.exchanges) {
        hidden.push_back(one.hidden > 0 ? exchange(rank, one, one.hidden, begin) : TaskId());
    }
    TaskId end = kernels;
    double exposed = 0;
    for (std::size_t i = 0; i < parts.exchanges.size(); ++i) {
        const PassExchange& one = parts.exchanges[i];
        TaskId last = hidden[i];
        if (one.exposed > 0) {
            last = exchange(rank, one, one.exposed, end);
            if (hidden[i].valid()) {
                out_.graph.add_edge(hidden[i], last);
            }
            exposed += one.exposed;
        }
        end = mark(rank, crossings_[one.crossing].category);
        out_.graph.add_edge(last, end);
    }
    begun_[end.value()] = begin;
    exposed_[kernels.value()] = exposed;
    return end;
}

}  // namespace orrery::training
