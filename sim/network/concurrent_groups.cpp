#include "sim/network/concurrent_groups.hpp"

#include "sim/network/group_loads.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace orrery::network {

bool switch_links_matter(const Fabric& fabric, PathChoice paths) {
    return !fabric.full_bisection() || paths != PathChoice::spray;
}

ConcurrentGroups::ConcurrentGroups(const Fabric& fabric, PathChoice paths, std::vector<Group> groups)
    : fabric_(&fabric), paths_(paths), groups_(std::move(groups)) {
    if (groups_.size() < 2) {
        return;
    }
    std::set<std::uint32_t> nodes;
    for (const GpuId gpu : groups_[0]) {
        nodes.insert(fabric.domain_of(gpu));
    }
    if (nodes.size() == 1) {
        groups_.resize(1);  // ports inside a node are a GPU's own
    } else if (!switch_links_matter(fabric, paths)) {
        std::erase_if(groups_, [&](const Group& group) {
            return std::none_of(group.begin(), group.end(),
                                [&](GpuId gpu) { return nodes.contains(fabric.domain_of(gpu)); });
        });
    }
}

ConcurrentGroups ConcurrentGroups::rails() const {
    const std::size_t per_node = layout_of(*fabric_, groups_.at(0)).per_node();
    std::vector<Group> out;
    for (const Group& group : groups_) {
        for (std::size_t place = 0; place < per_node; ++place) {
            Group& rail = out.emplace_back();
            for (std::size_t i = place; i < group.size(); i += per_node) {
                rail.push_back(group[i]);
            }
        }
    }
    return {*fabric_, paths_, std::move(out)};
}

ConcurrentGroups ConcurrentGroups::node_parts() const {
    const std::size_t per_node = layout_of(*fabric_, groups_.at(0)).per_node();
    std::vector<Group> out;
    for (const Group& group : groups_) {
        for (auto from = group.begin(); from != group.end(); from += static_cast<std::ptrdiff_t>(per_node)) {
            out.emplace_back(from, from + static_cast<std::ptrdiff_t>(per_node));
        }
    }
    return {*fabric_, paths_, std::move(out)};
}

ConcurrentGroups::Traffic ConcurrentGroups::traffic(bool pairs) const {
    Traffic out;
    out.ports = ports_of(*fabric_, groups_[0]);
    std::vector<Load> loads(fabric_->resource_count());
    double propagation = 0;
    for_group_loads(
        {*fabric_, paths_, groups_, out.ports, pairs},
        [&](ResourceId resource, double inside, double outside) {
            loads[resource.value()].inside += inside / fabric_->capacity(resource);
            loads[resource.value()].outside += outside / fabric_->capacity(resource);
        },
        [&](const Route& route) { propagation = std::max(propagation, route.latency); });
    const FabricShape& shape = fabric_->shape();
    // Over several fabrics the longest of the paths says it.
    const bool one_fabric = shape.outer_bandwidth == 0;
    out.propagation = one_fabric ? out.ports.nic_latency + Seconds(4 * shape.link_latency) : Seconds(propagation);
    std::sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
        return a.outside != b.outside ? a.outside > b.outside : a.inside > b.inside;
    });
    for (const Load& load : loads) {
        if (load.inside + load.outside > 0 && (out.most.empty() || load.inside > out.most.back().inside)) {
            out.most.push_back(load);
        }
    }
    return out;
}

// Of a mesh a message takes the link between its two ends, of those that a GPU has to all members of its group.
static double links_of(const Fabric& fabric, const GroupPorts& ports, GpuId gpu) {
    const NodeGroup& parts = fabric.parts_of(gpu);
    const bool dies = ports.packages && parts.package_bandwidth > 0;
    return parts.intra == IntraKind::mesh && !dies ? ports.rate_of(fabric, gpu) / parts.intra_bandwidth : 1;
}

Seconds ConcurrentGroups::seconds(const CollectiveModel& model, CollectiveOp op, Bytes payload) const {
    if (size() < 2 || payload <= Bytes()) {
        return Seconds();
    }
    const bool pairs = op == CollectiveOp::all_to_all;
    std::shared_ptr<const Traffic>& known = known_[pairs ? 1 : 0];
    if (known == nullptr) {
        known = std::make_shared<const Traffic>(traffic(pairs));
    }
    const GroupPorts& ports = known->ports;
    const CollectivePrice price = model.price(op, ports.layout, payload, ports.least);
    const double links = op == CollectiveOp::send_recv ? links_of(*fabric_, ports, groups_[0][0]) : 1;
    double slowest = 0;
    for (const Load& load : known->most) {
        slowest = std::max(slowest, links * load.inside / price.intra_efficiency +
                                        price.outside * load.outside / price.nic_efficiency);
    }
    const Seconds latency = price.latency + (ports.layout.nodes > 1 ? known->propagation : ports.inside_latency);
    return latency + Seconds(wire_bytes(op, ports.layout.ranks, payload).value() * slowest);
}

}  // namespace orrery::network
