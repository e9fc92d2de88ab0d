#include "sim/network/collective.hpp"

#include "sim/base/random.hpp"

#include <algorithm>
#include <map>

namespace orrery::network {

const std::vector<std::string>& collective_op_names() {
    static const std::vector<std::string> kNames = {"all-reduce", "all-gather", "reduce-scatter",
                                                    "all-to-all", "send-recv",  "broadcast",
                                                    "reduce",     "gather",     "scatter"};
    return kNames;
}

// What the library reaches of a NIC's rate limits a routed flow; its bytes stay what they are.
static double flow_limit(const Fabric& fabric, GpuId from, GpuId to, const CollectivePrice& price) {
    if (price.nic_efficiency >= 1) {
        return 0;
    }
    const Fabric::Crossing crossing = fabric.crossing(from, to);
    return price.nic_efficiency *
           std::min(fabric.capacity(fabric.nic_out(crossing.out)), fabric.capacity(fabric.nic_in(crossing.in)));
}

double GroupPorts::rate_of(const Fabric& fabric, GpuId gpu) const {
    const NodeGroup& parts = fabric.parts_of(gpu);
    const std::uint32_t members = layout.per_node();
    if (parts.intra != IntraKind::mesh) {
        return parts.intra_bandwidth;
    }
    if (packages && parts.package_bandwidth > 0) {
        return parts.package_bandwidth;
    }
    return parts.intra_bandwidth * (members > 1 ? members - 1 : fabric.shape().gpus_per_node - 1);
}

// Whether the members on each node are the two dies of a package.
static bool are_packages(const Fabric& fabric, const std::vector<GpuId>& group, std::uint32_t members) {
    const std::uint32_t gpus = fabric.shape().gpus_per_node;
    for (std::size_t i = 0; members == 2 && i + 1 < group.size(); i += 2) {
        if (group[i].value() % gpus / 2 != group[i + 1].value() % gpus / 2) {
            return false;
        }
    }
    return members == 2;
}

// Of the NICs that the ranks of a node use together, on the node where that is least.
static BytesPerSecond nics_of(const Fabric& fabric, const std::vector<GpuId>& group) {
    double least = 0;
    double here = 0;
    std::uint32_t last = 0;
    for (std::size_t i = 0; i < group.size(); ++i) {
        const std::uint32_t nic = fabric.nic_of(group[i]);
        if (i > 0 && fabric.domain_of(group[i]) != fabric.domain_of(group[i - 1])) {
            least = least > 0 ? std::min(least, here) : here;
            here = 0;
        }
        here += here == 0 || nic != last ? fabric.capacity(fabric.nic_out(nic)) : 0;
        last = nic;
    }
    return BytesPerSecond(least > 0 ? std::min(least, here) : here);
}

Bytes wire_bytes(CollectiveOp op, std::uint32_t ranks, Bytes payload) {
    if (ranks < 2) {
        return Bytes();
    }
    const double share = static_cast<double>(ranks - 1) / ranks;
    switch (op) {
        case CollectiveOp::all_reduce:
            return 2 * share * payload;
        case CollectiveOp::all_gather:
        case CollectiveOp::reduce_scatter:
        case CollectiveOp::all_to_all:
        case CollectiveOp::gather:
        case CollectiveOp::scatter:
            return share * payload;
        case CollectiveOp::send_recv:
        case CollectiveOp::broadcast:
        case CollectiveOp::reduce:
            return payload;
    }
    return Bytes();
}

Bytes memory_bytes(CollectiveOp op, std::uint32_t ranks, Bytes payload) {
    const bool sums = op == CollectiveOp::reduce_scatter || op == CollectiveOp::reduce;
    // An all-reduce sums in its first half and spreads in its second.
    const double touches = sums ? 3 : op == CollectiveOp::all_reduce ? 2.5 : 2;
    return touches * wire_bytes(op, ranks, payload);
}

GroupLayout layout_of(const Fabric& fabric, const std::vector<GpuId>& group) {
    std::map<std::uint32_t, std::uint32_t> count;
    for (const GpuId gpu : group) {
        ++count[fabric.domain_of(gpu)];
    }
    for (const auto& [node, members] : count) {
        if (members != count.begin()->second) {
            throw InfeasibleError("a communication group of " + std::to_string(group.size()) + " ranks has " +
                                      std::to_string(members) + " of them on node " + std::to_string(node) + " and " +
                                      std::to_string(count.begin()->second) + " on node " +
                                      std::to_string(count.begin()->first) + "; choose degrees that divide the node",
                                  ErrorCode::does_not_divide);
        }
    }
    return GroupLayout{static_cast<std::uint32_t>(group.size()), static_cast<std::uint32_t>(count.size()),
                       count.size() > 1 ? nics_of(fabric, group) : BytesPerSecond()};
}

GroupPorts ports_of(const Fabric& fabric, const std::vector<GpuId>& group) {
    GroupPorts out;
    out.layout = layout_of(fabric, group);
    out.packages = are_packages(fabric, group, out.layout.per_node());
    double least = out.rate_of(fabric, group[0]);
    for (const GpuId gpu : group) {
        const NodeGroup& parts = fabric.parts_of(gpu);
        least = std::min(least, out.rate_of(fabric, gpu));
        out.inside_latency = std::max(out.inside_latency, Seconds(parts.intra_latency));
        out.nic_latency = std::max(out.nic_latency, Seconds(parts.nic_latency));
    }
    out.least = BytesPerSecond(least);
    return out;
}

// A message to the next rank takes one link of a mesh, other collectives all that lead to the group.
static double rate_for(CollectiveOp op, const GroupPorts& of, const Fabric& fabric, GpuId gpu) {
    const NodeGroup& parts = fabric.parts_of(gpu);
    const bool dies = of.packages && parts.package_bandwidth > 0;
    const bool one = op == CollectiveOp::send_recv && parts.intra == IntraKind::mesh && !dies;
    return one ? parts.intra_bandwidth : of.rate_of(fabric, gpu);
}

// One demand of each resource, in the order of resources; what one resource is asked for is added up as it came.
static std::vector<Demand> added_up(std::vector<Demand> parts) {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Demand& a, const Demand& b) { return a.resource < b.resource; });
    std::vector<Demand> out;
    for (const Demand& part : parts) {
        if (out.empty() || out.back().resource != part.resource) {
            out.push_back(part);
        } else {
            out.back().weight += part.weight;
        }
    }
    return out;
}

GroupTransfer make_transfer(const Fabric& fabric, const CollectiveModel& model, CollectiveOp op,
                            const std::vector<GpuId>& group, Bytes payload, PathChoice paths,
                            const std::vector<bool>* only_nodes) {
    GroupTransfer out;
    if (group.size() < 2 || payload <= Bytes()) {
        return out;
    }
    const GroupPorts of = ports_of(fabric, group);
    const GroupLayout& layout = of.layout;
    const FabricShape& shape = fabric.shape();
    const CollectivePrice price = model.price(op, layout, payload, of.least);
    // Over several fabrics the longest of the paths says it.
    const bool one_fabric = shape.outer_bandwidth == 0;
    out.propagation = Seconds(layout.nodes > 1 && one_fabric ? of.nic_latency.value() + 4 * shape.link_latency : 0);
    out.bytes = wire_bytes(op, layout.ranks, payload);

    const double r = layout.per_node();
    const double n = layout.ranks;
    // A ring leaves each node once; of an all-to-all only what goes to the own node stays inside.
    const double inside = op == CollectiveOp::all_to_all ? (r - 1) / (n - 1) : (layout.nodes > 1 ? (r - 1) / r : 1);
    const double outside =
        price.outside * (op == CollectiveOp::all_to_all ? (n - r) / (n - 1) * r : (layout.nodes > 1 ? 1 : 0));
    std::vector<Demand> parts;
    const auto wanted = [&](std::uint32_t node) { return only_nodes == nullptr || (*only_nodes)[node]; };
    for (const GpuId gpu : group) {
        if (inside > 0 && wanted(fabric.node_of(gpu))) {
            // A resource stands for all links of a GPU; those to the members are a part of it.
            const double part = fabric.capacity(fabric.intra_up(gpu)) / rate_for(op, of, fabric, gpu);
            parts.push_back({fabric.intra_up(gpu), part * inside / price.intra_efficiency});
            parts.push_back({fabric.intra_down(gpu), part * inside / price.intra_efficiency});
        }
    }
    if (outside > 0) {
        // Member j of each node sends to member j of the next node in ring order.
        const std::size_t per_node = layout.per_node();
        const double weight = outside / r / price.nic_efficiency;
        for (std::size_t i = 0; i < group.size(); ++i) {
            const GpuId from = group[i];
            const GpuId to = group[(i + per_node) % group.size()];
            if (only_nodes == nullptr) {
                out.flows.push_back(RoutedFlow{from, to, outside / r, flow_limit(fabric, from, to, price)});
                out.flows.back().part = RoutedFlow::Part::collective;
            }
            const bool from_wanted = wanted(fabric.node_of(from));
            const bool to_wanted = wanted(fabric.node_of(to));
            if (!from_wanted && !to_wanted) {
                continue;
            }
            const Route route = fabric.route(from, to, paths, mix64((std::uint64_t{from.value()} << 32U) | to.value()));
            const std::span<const ResourceId> links = route.resources();
            // A folded run keeps the ports at its own nodes; the path in between cannot bind.
            const auto ports = [&](GpuId gpu) { return fabric.parts_of(gpu).pcie_bandwidth > 0 ? 2U : 1U; };
            if (!one_fabric) {
                out.propagation = std::max(out.propagation, Seconds(route.latency));
            }
            for (std::size_t k = 0; k < links.size(); ++k) {
                const bool at_from = k < ports(from);
                const bool at_to = k + ports(to) >= links.size();
                const bool keep = only_nodes == nullptr || (at_from && from_wanted) || (at_to && to_wanted);
                if (keep) {
                    parts.push_back({links[k], weight * route.share(k)});
                }
            }
        }
    }
    out.latency = price.latency + (layout.nodes > 1 ? out.propagation : of.inside_latency);
    out.demands = added_up(std::move(parts));
    return out;
}

GroupTransfer make_send(const Fabric& fabric, const CollectiveModel& model, GpuId from, GpuId to, Bytes payload,
                        PathChoice choice, std::uint64_t hash) {
    const bool inside = fabric.domain_of(from) == fabric.domain_of(to);
    const CollectivePrice price = model.price(CollectiveOp::send_recv, GroupLayout{2, inside ? 1U : 2U, {}}, payload,
                                              BytesPerSecond(fabric.parts_of(from).intra_bandwidth));
    const Route route = fabric.route(from, to, choice, hash);
    GroupTransfer out;
    out.latency = price.latency + Seconds(route.latency);
    out.bytes = payload;
    if (!inside) {
        out.propagation = Seconds(route.latency);
        out.flows.push_back(RoutedFlow{from, to, 1, flow_limit(fabric, from, to, price)});
        out.flows.back().part = RoutedFlow::Part::send;
    }
    const double weight = 1 / (inside ? price.intra_efficiency : price.nic_efficiency);
    const std::span<const ResourceId> links = route.resources();
    for (std::size_t i = 0; i < links.size(); ++i) {
        out.demands.push_back(Demand{links[i], weight * route.share(i)});
    }
    return out;
}

Seconds seconds_alone(const Fabric& fabric, const GroupTransfer& transfer) {
    double slowest = 0;
    for (const Demand& demand : transfer.demands) {
        slowest = std::max(slowest, demand.weight / fabric.capacity(demand.resource));
    }
    return transfer.latency + Seconds(transfer.bytes.value() * slowest);
}

}  // namespace orrery::network
