// What a training scenario gives its lowering: the devices of its groups, its ranks' places, and whether they fit each other.

#include "tools/driver/kinds/training_input.hpp"

#include "tools/driver/group_names.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/lowering/tiers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::driver {

// The order of groups that a plan names, those that it does not after them.
static std::vector<std::uint32_t> group_order(const Scenario& scenario, const Fabric& fabric) {
    const std::vector<NodeGroup>& groups = fabric.shape().groups;
    std::vector<std::string> names;
    for (const NodeGroup& group : groups) {
        names.push_back(group.name);
    }
    std::vector<std::uint32_t> order;
    for (const std::string& name : names_in(scenario.as<TrainingKind>().plan.groups)) {
        order.push_back(static_cast<std::uint32_t>(std::find(names.begin(), names.end(), name) - names.begin()));
        ORRERY_ASSERT(order.back() < names.size());  // reading the scenario checked it
    }
    for (std::uint32_t group = 0; group < groups.size(); ++group) {
        if (std::find(order.begin(), order.end(), group) == order.end()) {
            order.push_back(group);
        }
    }
    return order;
}

// Where the ranks of a plan are: on its groups in their order, stage after stage or replica after replica.
static Placement placed(const Scenario& scenario, const Fabric& fabric, const Placement& placement) {
    const PlanSpec& plan = scenario.as<TrainingKind>().plan;
    if (plan.groups.empty() && plan.spread == Spread::stages) {
        return placement;
    }
    const std::vector<std::uint32_t> groups = group_order(scenario, fabric);
    std::vector<std::uint32_t> places;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, groups.size()); ++i) {
        for (std::uint32_t place = 0; place < placement.gpus(); ++place) {
            if (groups.empty() || fabric.group_of(placement.gpu(place)) == groups[i]) {
                places.push_back(place);
            }
        }
    }
    ORRERY_ASSERT(places.size() == placement.gpus());  // each GPU is of one group
    const RankMap by_stage(plan);
    const RankMap by_replica = by_stage.replica_by_replica();
    std::vector<std::uint32_t> order(places.size());
    bool moved = false;
    for (std::uint32_t rank = 0; rank < order.size(); ++rank) {
        const auto [stage, replica, member] = by_stage.place(rank);
        order[rank] = places[plan.spread == Spread::stages ? rank : by_replica.rank({replica, stage, member})];
        moved = moved || order[rank] != rank;
    }
    return moved ? placement.reordered(std::move(order)) : placement;
}

// Ranks that compute one layer together are on nodes of one kind. All that are not are named at once.
static void check_groups(const TrainingInput& input) {
    if (input.groups.empty()) {
        return;
    }
    const std::vector<NodeGroup>& groups = input.fabric.shape().groups;
    const RankMap order(input.plan);
    const std::uint32_t last = order.per_replica() - 1;
    std::string wrong;
    for (std::int64_t stage = 0; stage < input.plan.pipeline; ++stage) {
        for (std::int64_t replica = 0; replica < input.plan.data; ++replica) {
            const GpuId first = input.first_gpu(stage, replica);
            const std::uint32_t rank =
                order.rank({static_cast<std::uint32_t>(stage), static_cast<std::uint32_t>(replica), last});
            const std::uint32_t from = input.fabric.group_of(first);
            const std::uint32_t to = input.fabric.group_of(input.placement.gpu(rank));
            ORRERY_ASSERT(from < groups.size() && to < groups.size());
            if (from != to) {
                wrong += fmt::format("{}stage {} of replica {} lies on '{}' and '{}'", wrong.empty() ? "" : "; ", stage,
                                     replica, groups[from].name, groups[to].name);
            }
        }
    }
    if (!wrong.empty()) {
        throw InfeasibleError(
            fmt::format("tensor x context = {} ranks of a replica are on nodes of one group, but {}", last + 1, wrong));
    }
}

// Of the nodes that hold ranks.
static std::vector<HostOf> hosts_of(const TrainingInput& input, const std::vector<GroupDevice>& devices) {
    if (input.groups.empty()) {
        return {{"", devices.front().host}};
    }
    std::vector<bool> holds(input.groups.size());
    for (std::int64_t rank = 0; rank < input.plan.ranks(); ++rank) {
        holds[input.fabric.group_of(input.placement.gpu(static_cast<std::uint32_t>(rank)))] = true;
    }
    std::vector<HostOf> out;
    ORRERY_ASSERT(std::find(holds.begin(), holds.end(), true) != holds.end());  // some node has ranks
    for (std::size_t i = 0; i < holds.size(); ++i) {
        if (holds[i]) {
            out.push_back({input.fabric.shape().groups[i].name, input.groups[i].host});
        }
    }
    return out;
}

// Ranks that share a layer's experts wait for each other in every exchange.
static void check_expert_groups(const TrainingInput& input) {
    if (input.groups.empty() || input.model.experts.count == 0) {
        return;
    }
    const std::vector<NodeGroup>& groups = input.fabric.shape().groups;
    const std::int64_t together = input.plan.experts.expert * input.plan.expert_tensor();
    std::string wrong;
    for (std::int64_t first = 0; first < input.plan.ranks(); first += together) {
        const auto group_of = [&](std::int64_t rank) {
            return input.fabric.group_of(input.placement.gpu(static_cast<std::uint32_t>(rank)));
        };
        for (std::int64_t rank = first + 1; rank < first + together; ++rank) {
            if (group_of(rank) != group_of(first)) {
                wrong += fmt::format("{}ranks {} to {} lie on '{}' and '{}'", wrong.empty() ? "" : "; ", first,
                                     first + together - 1, groups[group_of(first)].name, groups[group_of(rank)].name);
                break;
            }
        }
    }
    if (!wrong.empty()) {
        throw InfeasibleError(fmt::format(
            "expert x expert-tensor = {} ranks that share a layer's experts are on nodes of one group, but {}",
            together, wrong));
    }
}

std::vector<GroupDevice> node_devices(const Scenario& scenario, ModelCache& models) {
    const auto device_of = [&](const NodeSpec& node) {
        return GroupDevice{&models.device(node.gpu, scenario.as<TrainingKind>().compute), &node.gpu,
                           &models.collectives(node, scenario.network.collectives),
                           node.has_host ? &node.host : nullptr};
    };
    std::vector<GroupDevice> out;
    for (const GroupSpec& group : scenario.cluster.groups) {
        out.push_back(device_of(group.node));
    }
    if (out.empty()) {
        out.push_back(device_of(scenario.cluster.node));
    }
    return out;
}

TrainingInput training_input(const Scenario& scenario, ModelCache& models, const Fabric& fabric,
                             const Placement& placement) {
    const auto& training = scenario.as<TrainingKind>();
    check_spec(training.model, training.plan, placement.gpus(), training.plan_mark);
    return training_input(scenario, node_devices(scenario, models), fabric, placement);
}

TrainingInput training_input(const Scenario& scenario, const std::vector<GroupDevice>& devices, const Fabric& fabric,
                             const Placement& placement) {
    const auto& training = scenario.as<TrainingKind>();
    check_spec(training.model, training.plan, placement.gpus(), training.plan_mark);
    const Placement own = placed(scenario, fabric, placement);
    std::string unfit;
    for (const GroupDevice& one : devices) {
        if (one.gpu->matrix_flops(training.plan.precision) <= 0) {
            unfit += fmt::format("{}{} has no matrix unit for {}", unfit.empty() ? "" : "; ", one.gpu->name,
                                 precision_names()[static_cast<std::size_t>(training.plan.precision)]);
        }
    }
    if (!unfit.empty()) {
        throw InfeasibleError(unfit);
    }
    const bool mixed = !scenario.cluster.groups.empty();
    ORRERY_ASSERT(devices.size() == std::max<std::size_t>(1, scenario.cluster.groups.size()));
    const GroupDevice& first = devices[mixed ? fabric.group_of(own.gpu(0)) : 0];
    const bool by_packet = scenario.network.by_packet();
    TrainingInput input{training.model,
                        training.plan,
                        training.software,
                        *first.device,
                        *first.gpu,
                        fabric,
                        *first.collectives,
                        own,
                        scenario.network.path_choice(),
                        scenario.network.fold && !by_packet,
                        by_packet};
    input.in_order = scenario.network.fidelity == Fidelity::analytic;
    if (mixed) {
        input.groups = devices;
    }
    check_tiers(training.plan, hosts_of(input, devices), training.plan_mark);
    input.host = training.plan.has<OffloadPlan>() ? first.host : nullptr;
    check_groups(input);
    check_expert_groups(input);
    if (const DocumentsPlan& documents = training.plan.feature<DocumentsPlan>(); documents.given) {
        const auto tensor = static_cast<std::uint32_t>(training.plan.tensor);
        input.documents = std::make_shared<const DocumentLayout>(lay_out_documents(
            training.model, training.plan,
            documents.trace.empty() ? std::vector<std::int64_t>()
                                    : read_document_trace(scenario.file(documents.trace), training.model.sequence),
            static_cast<std::uint64_t>(scenario.seed), fabric.shape().gpus_per_node / tensor));
    }
    return input;
}

}  // namespace orrery::driver
