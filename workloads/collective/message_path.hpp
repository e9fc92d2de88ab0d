#pragma once
// What a message asks of links and, between nodes, of a back end that routes flows itself.

#include "sim/network/fabric.hpp"
#include "sim/network/topology/routed.hpp"

#include <vector>

namespace orrery::collective {

/// One object serves all messages of a run: millions of them start, each on a route of its own.
struct MessagePath {
    std::vector<Demand> demands;
    RoutedFlow flow;
    bool crosses = false;  ///< between nodes

    void take(const Fabric& fabric, GpuId from, GpuId to, const Route& route) {
        demands.clear();
        const std::span<const ResourceId> links = route.resources();
        for (std::size_t i = 0; i < links.size(); ++i) {
            demands.push_back(Demand{links[i], route.share(i)});
        }
        crosses = fabric.domain_of(from) != fabric.domain_of(to);
        flow.from = from;
        flow.to = to;
        flow.rate_limit = route.rate_limit;
    }
    [[nodiscard]] std::span<const RoutedFlow> flows() const { return {&flow, crosses ? 1U : 0U}; }
};

/// B/s that one connection reaches.
[[nodiscard]] inline double bound_of(const Route& route) {
    return route.rate_limit > 0 ? route.rate_limit : ResourceModel::kUnbounded;
}

/// s, before the sharing of a message begins.
[[nodiscard]] inline double latency_of(const ResourceModel& resources, const Route& route, bool crosses) {
    return resources.routes_flows() && crosses ? 0 : route.latency;
}

/// What the slow start of its connections adds, s.
[[nodiscard]] inline double slow_start_of(const Fabric& fabric, GpuId from, GpuId to, double bytes) {
    // Trees have none, and are told without a cast.
    const auto* routed =
        fabric.as_tree() == nullptr ? dynamic_cast<const RoutedTopology*>(&fabric.topology()) : nullptr;
    if (routed == nullptr || fabric.domain_of(from) == fabric.domain_of(to)) {
        return 0;
    }
    const Fabric::Crossing crossing = fabric.crossing(from, to);
    return routed->slow_start(routed->switch_of(crossing.out), routed->switch_of(crossing.in), bytes);
}

/// What hashed paths go by.
[[nodiscard]] inline std::uint64_t hash_of(GpuId from, std::uint32_t to) {
    return (static_cast<std::uint64_t>(from.value()) << 32) | to;
}

}  // namespace orrery::collective
