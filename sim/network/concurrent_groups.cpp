#include "sim/network/concurrent_groups.hpp"

#include "sim/base/random.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace orrery::network {

bool switch_links_matter(const Fabric& fabric, PathChoice paths) {
    return !fabric.full_bisection() || paths != PathChoice::spray;
}

// Whether flows between the same two switches load the same links, and a rank's own ports whatever it sends to whom.
static bool pairs_are_alike(const Fabric& fabric, PathChoice paths) {
    return paths == PathChoice::spray && fabric.shape().outer_bandwidth == 0;
}

namespace {

/// So many pairs of ranks on different nodes whose NICs hang on the same two switches, and one of these pairs.
struct SwitchPairs {
    GpuId from, to;
    double pairs = 0;
};

}  // namespace

// Thousands of pairs of ranks are a few pairs of switches.
static std::map<std::pair<std::uint32_t, std::uint32_t>, SwitchPairs> between_switches(
    const Fabric& fabric, const ConcurrentGroups::Group& group) {
    struct End {
        GpuId one;
        double ranks = 0;
    };
    std::map<std::pair<std::uint32_t, std::uint32_t>, End> ends;  // by switch and node
    for (const GpuId gpu : group) {
        End& end = ends[{fabric.topology().switch_of(fabric.nic_of(gpu)), fabric.domain_of(gpu)}];
        end.one = gpu;
        end.ranks += 1;
    }
    std::map<std::pair<std::uint32_t, std::uint32_t>, SwitchPairs> out;
    for (const auto& [from, sender] : ends) {
        for (const auto& [to, receiver] : ends) {
            if (from.first != to.first && from.second != to.second) {
                SwitchPairs& flow = out[{from.first, to.first}];
                flow = {sender.one, receiver.one, flow.pairs + sender.ranks * receiver.ranks};
            }
        }
    }
    return out;
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
    const double n = out.ports.layout.ranks;
    const double r = out.ports.layout.per_node();
    const auto members = static_cast<std::size_t>(out.ports.layout.per_node());
    const bool crosses = out.ports.layout.nodes > 1;
    const bool each_pair = pairs && switch_links_matter(*fabric_, paths_);
    std::vector<Load> loads(fabric_->resource_count());
    const auto add = [&](ResourceId resource, double inside, double outside) {
        loads[resource.value()].inside += inside / fabric_->capacity(resource);
        loads[resource.value()].outside += outside / fabric_->capacity(resource);
    };
    double propagation = 0;
    enum class Links { all, ports, switches };
    const auto send = [&](GpuId from, GpuId to, double weight, Links of) {
        const Route route = fabric_->route(from, to, paths_, mix64((std::uint64_t{from.value()} << 32U) | to.value()));
        propagation = std::max(propagation, route.latency);
        const std::span<const ResourceId> links = route.resources();
        for (std::size_t k = 0; k < links.size(); ++k) {
            const bool port = links[k].value() < fabric_->first_switch_link();
            if (of == Links::all || port == (of == Links::ports)) {
                add(links[k], 0, weight * route.share(k));
            }
        }
    };
    // Of an all-to-all only what goes to the own node stays inside; a ring leaves each node once.
    const double inside = pairs ? (r - 1) / (n - 1) : crosses ? (r - 1) / r : 1;
    const bool by_switch = each_pair && pairs_are_alike(*fabric_, paths_);
    for (const Group& group : groups_) {
        for (std::size_t i = 0; i < group.size(); ++i) {
            const GpuId from = group[i];
            if (inside > 0) {
                const double part = fabric_->capacity(fabric_->intra_up(from)) / out.ports.rate_of(*fabric_, from);
                add(fabric_->intra_up(from), part * inside, 0);
                add(fabric_->intra_down(from), part * inside, 0);
            }
            for (std::size_t k = 0; each_pair && !by_switch && crosses && k < group.size(); ++k) {
                if (fabric_->domain_of(group[k]) != fabric_->domain_of(from)) {
                    send(from, group[k], 1 / (n - 1), Links::all);
                }
            }
            if (crosses && (!each_pair || by_switch)) {
                // Member j of each node sends to member j of the next node in ring order.
                send(from, group[(i + members) % group.size()], pairs ? (n - r) / (n - 1) : 1 / r,
                     by_switch ? Links::ports : Links::all);
            }
        }
        if (crosses && by_switch) {
            for (const auto& [ends, flow] : between_switches(*fabric_, group)) {
                send(flow.from, flow.to, flow.pairs / (n - 1), Links::switches);
            }
        }
    }
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
    double slowest = 0;
    for (const Load& load : known->most) {
        slowest = std::max(slowest,
                           load.inside / price.intra_efficiency + price.outside * load.outside / price.nic_efficiency);
    }
    const Seconds latency = price.latency + (ports.layout.nodes > 1 ? known->propagation : ports.inside_latency);
    return latency + Seconds(wire_bytes(op, ports.layout.ranks, payload).value() * slowest);
}

}  // namespace orrery::network
