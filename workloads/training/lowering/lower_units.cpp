#include "sim/base/error.hpp"
#include "workloads/training/features/sharding.hpp"
#include "workloads/training/lowering/lowering_units.hpp"

namespace orrery::training {

UnitLowering::UnitLowering(const TrainingInput& input, RankCopies ranks)
    : Lowering(input, ranks), reduced_(rank_count()) {
    const ShardDegrees degrees = degrees_of(input.plan);
    const auto count_of = [](std::int64_t count) { return static_cast<std::uint32_t>(count); };
    scatter_ = first_hop_ = count_of(degrees.gradients);
    share_ = input.plan.has<ShardingPlan>() ? count_of(degrees.weights) : scatter_;
    states_ = input.plan.has<ShardingPlan>() ? count_of(degrees.optimizer) : scatter_;
    if (!by_unit()) {
        return;
    }
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        StageGroups groups;
        groups.weights = spans(stage, 1, share_);
        groups.second = degrees.secondary > 0 ? spans(stage, 1, count_of(degrees.secondary)) : spans(stage, 1, share_);
        groups.scatter = spans(stage, 1, scatter_);
        if (quantises() && !groups.scatter.empty()) {
            first_hop_ = layout_of(in_.fabric, groups.scatter[0].gpus).per_node();
            ORRERY_ASSERT(scatter_ % first_hop_ == 0);
            groups.scatter = spans(stage, 1, first_hop_);
            groups.between = spans(stage, first_hop_, scatter_);
        }
        groups.states = spans(stage, scatter_, states_);
        groups.replicas = spans(stage, states_, width());
        groups.updates = spans(stage, share_, states_);
        groups.experts = expert_groups(stage);
        stages_of_.push_back(std::move(groups));
    }
}

void UnitLowering::add_costs(Price& price, std::uint32_t stage, const Unit& unit, bool backward, bool gathered,
                             bool reduced) {
    const StageGroups& groups = stages_of_[stage];
    if (in_.plan.overlap_data && unit.weights.bytes() > 0 && !(groups.weights.empty() && groups.scatter.empty())) {
        price[backward ? Category::backward : Category::forward] +=
            lost_to(transfers_of(stage, unit, backward, reduced), price);
    }
    price[Category::overhead] += host_time(unit, backward, reduced);
    price[Category::data_communication] += copy_time(unit, backward, gathered, reduced);
}

// What travels while about one unit computes, alone.
Alone UnitLowering::transfers_of(std::uint32_t stage, const Unit& unit, bool backward, bool reduced) const {
    const StageGroups& groups = stages_of_[stage];
    Alone sum;
    const auto add = [&](const std::vector<Group>& alike, CollectiveOp op, double bytes) {
        sum += alike.empty() || bytes <= 0 ? Alone() : alone(op, alike[0], bytes);
    };
    if (in_.plan.zero >= 3) {
        add(backward ? groups.second : groups.weights, CollectiveOp::all_gather,
            rounds(backward) * gathered_bytes(unit));
    }
    if (reduced) {
        const double bytes = gradient_wire_bytes(in_.plan) * unit.weights.dense;
        add(groups.scatter, quantises() ? CollectiveOp::all_to_all : CollectiveOp::reduce_scatter, bytes);
        add(groups.between, CollectiveOp::all_to_all, bytes / first_hop_);
    }
    if (in_.plan.zero >= 3) {
        add(groups.experts, CollectiveOp::all_gather, 2 * rounds(backward) * unit.weights.experts);
    }
    if (reduced) {
        add(groups.experts, CollectiveOp::reduce_scatter, bytes_of(in_.plan.gradient_precision) * unit.weights.experts);
    }
    return sum;
}

// DeepSpeed waits for the device before it cuts a buffer into its list, so no kernel hides this time.
double UnitLowering::host_time(const Unit& unit, bool backward, bool reduced) const {
    if (unit.weights.bytes() == 0) {
        return 0;
    }
    const auto of_layer = [&](std::int64_t count) { return unit.table ? 1.0 : static_cast<double>(count); };
    const double gathered = in_.plan.zero >= 3 ? rounds(backward) * of_layer(in_.software.gathers_per_layer) : 0;
    return pieces() *
           (gathered + (reduced && unit.weights.total() > 0 ? of_layer(in_.software.reductions_per_layer) : 0));
}

// Weights of 16 bits out of the buffer that they were gathered into, gradients of 16 bits into the one that is reduced.
double UnitLowering::copy_time(const Unit& unit, bool backward, bool gathered, bool reduced) const {
    double bytes = 0;
    if (in_.software.unpacks_gathers && gathered && in_.plan.zero >= 3) {
        bytes += 2 * rounds(backward) * unit.weights.bytes();
    }
    if (in_.software.packs_gradients && reduced) {
        bytes += (2 + bytes_of(in_.plan.gradient_precision)) * unit.weights.total();
    }
    const double moved = bytes + quantise_traffic(unit, backward, gathered, reduced);
    return moved > 0 ? in_.software.kernel_slowdown.value * cost().memory_traffic(moved) : 0;
}

// Of weights: a rank's share is read and rounded, what is gathered is read and widened. Of gradients: all are read and rounded; what
// came from inside the node is read, added up and rounded again; what came from other nodes is read, and the sums are written.
double UnitLowering::quantise_traffic(const Unit& unit, bool backward, bool gathered, bool reduced) const {
    const ShardingPlan& plan = in_.plan.feature<ShardingPlan>();
    double bytes = 0;
    const double shared = backward && plan.secondary > 0 ? static_cast<double>(plan.secondary) : share_;
    if (plan.weight_bits > 0 && gathered && shared > 1) {
        const double wire = weight_wire_bytes(in_.plan);
        bytes += rounds(backward) * ((2 + wire) / shared + wire + 2);
    }
    if (quantises() && reduced && scatter_ > 1) {
        const double wire = gradient_wire_bytes(in_.plan);
        const double whole = bytes_of(in_.plan.gradient_precision);
        bytes += whole + wire + wire + whole / scatter_;
        bytes += first_hop_ < scatter_ ? 2 * wire / first_hop_ : 0;
    }
    return bytes * unit.weights.dense;
}

// A transfer of each group, operation and size is planned once. A list is copied piece by piece from or to the flat
// buffer that the library needs (read and written), and a gather's buffer is cleared first.
TaskId UnitLowering::launch(const Group& group, std::uint8_t stream, const char* name, CollectiveOp op, double bytes,
                            std::int64_t collectives, const std::vector<TaskId>& after) {
    auto [entry, fresh] = planned_.try_emplace(
        {group.gpus.front().value(), group.gpus.back().value(), group.gpus.size(), static_cast<int>(op), bytes});
    auto& [set, planned] = entry->second;
    if (fresh) {
        planned = plan_transfer(op, group, bytes);
        planned.latency = planned.latency * static_cast<double>(collectives);
        if (pieces() > 0 && op != CollectiveOp::all_reduce) {
            const double copies = op == CollectiveOp::all_gather ? 3 : 2;
            planned.latency = planned.latency + Seconds(cost().memory_traffic(copies * bytes));
        }
        set = demands_of(op, group, bytes, planned);
    }
    return collective(group, stream, out_.graph.name(name), planned, set, after);
}

std::vector<TaskId> UnitLowering::all_of(const Group& group, const TaskLists& tasks) {
    std::vector<TaskId> out;
    for (const std::uint32_t member : group.members) {
        out.insert(out.end(), tasks[member].begin(), tasks[member].end());
    }
    return out;
}

}  // namespace orrery::training
