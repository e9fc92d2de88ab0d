#include "sim/network/group_loads.hpp"

#include "sim/base/random.hpp"
#include "sim/network/concurrent_groups.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

namespace orrery::network {

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
    const Fabric& fabric, const std::vector<GpuId>& group) {
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

void for_group_loads(const GroupTraffic& of, const std::function<void(ResourceId, double, double)>& add,
                     const std::function<void(const Route&)>& path) {
    const Fabric& fabric = of.fabric;
    const double n = of.ports.layout.ranks;
    const double r = of.ports.layout.per_node();
    const auto members = static_cast<std::size_t>(of.ports.layout.per_node());
    const bool crosses = of.ports.layout.nodes > 1;
    const bool each_pair = of.pairs && switch_links_matter(fabric, of.paths);
    enum class Links { all, ports, switches };
    const auto wanted = [&](GpuId gpu) { return of.only_nodes == nullptr || (*of.only_nodes)[fabric.node_of(gpu)]; };
    const auto port_count = [&](GpuId gpu) { return fabric.parts_of(gpu).pcie_bandwidth > 0 ? 2U : 1U; };
    const auto send = [&](GpuId from, GpuId to, double weight, Links kept_links) {
        if (!wanted(from) && !wanted(to)) {
            return;
        }
        const Route route = fabric.route(from, to, of.paths, mix64((std::uint64_t{from.value()} << 32U) | to.value()));
        path(route);
        const std::span<const ResourceId> links = route.resources();
        for (std::size_t k = 0; k < links.size(); ++k) {
            const bool port = links[k].value() < fabric.first_switch_link();
            const bool kept = of.only_nodes == nullptr || (k < port_count(from) && wanted(from)) ||
                              (k + port_count(to) >= links.size() && wanted(to));
            if (kept && (kept_links == Links::all || port == (kept_links == Links::ports))) {
                add(links[k], 0, weight * route.share(k));
            }
        }
    };
    // Of an all-to-all only what goes to the own node stays inside; a ring leaves each node once.
    const double inside = of.pairs ? (r - 1) / (n - 1) : crosses ? (r - 1) / r : 1;
    const bool by_switch = each_pair && pairs_are_alike(fabric, of.paths);
    for (const std::vector<GpuId>& group : of.groups) {
        for (std::size_t i = 0; i < group.size(); ++i) {
            const GpuId from = group[i];
            if (inside > 0 && wanted(from)) {
                const double part = fabric.capacity(fabric.intra_up(from)) / of.ports.rate_of(fabric, from);
                add(fabric.intra_up(from), part * inside, 0);
                add(fabric.intra_down(from), part * inside, 0);
            }
            for (std::size_t k = 0; each_pair && !by_switch && crosses && k < group.size(); ++k) {
                if (fabric.domain_of(group[k]) != fabric.domain_of(from)) {
                    send(from, group[k], 1 / (n - 1), Links::all);
                }
            }
            if (crosses && (!each_pair || by_switch)) {
                // Member j of each node sends to member j of the next node in ring order.
                send(from, group[(i + members) % group.size()], of.pairs ? (n - r) / (n - 1) : 1 / r,
                     by_switch ? Links::ports : Links::all);
            }
        }
        if (crosses && by_switch) {
            for (const auto& [ends, flow] : between_switches(fabric, group)) {
                send(flow.from, flow.to, flow.pairs / (n - 1), Links::switches);
            }
        }
    }
}

std::vector<std::vector<GpuId>> rails_of(const Fabric& fabric, const std::vector<GpuId>& group) {
    const std::size_t per_node = layout_of(fabric, group).per_node();
    std::vector<std::vector<GpuId>> out(per_node);
    for (std::size_t i = 0; i < group.size(); ++i) {
        out[i % per_node].push_back(group[i]);
    }
    return out;
}

std::vector<Demand> demands_of_group(const Fabric& fabric, PathChoice paths, const std::vector<GpuId>& group,
                                     bool pairs, const std::vector<bool>* only_nodes) {
    if (group.size() < 2) {
        return {};
    }
    const std::vector<std::vector<GpuId>> groups = {group};
    std::map<ResourceId, double> weights;
    for_group_loads(
        {fabric, paths, groups, ports_of(fabric, group), pairs, only_nodes},
        [&](ResourceId resource, double inside, double outside) { weights[resource] += inside + outside; },
        [](const Route&) {});
    std::vector<Demand> out;
    for (const auto& [resource, weight] : weights) {
        out.push_back({resource, weight});
    }
    return out;
}

}  // namespace orrery::network
