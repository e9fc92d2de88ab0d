#include "sim/network/packet/routing.hpp"

namespace orrery::inline network::packet {

void Routing::learn(std::uint32_t port) {
    ports_[port].avoided = ports_[port].down;
    any_avoided_ = false;
    for (std::uint32_t i = 0; i < ports_.size() && !any_avoided_; ++i) {
        any_avoided_ = ports_[i].avoided;
    }
}

// Adaptive topologies choose between the short way and a detour by what waits on the first link of each, times the links of
// the way: UGAL with local information, Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA
// 2008, section 4.1.
std::uint32_t Routing::first_link(std::uint32_t at, std::uint32_t to, Packet& p) const {
    const RoutedTopology& topology = *setup_.routed;
    if (topology.adaptive() && p.kind == PacketKind::data) {
        const auto cost = [&](std::uint32_t entropy) {
            const std::uint32_t port = setup_.base[kTreeKinds] + topology.next_link(at, to, entropy);
            return ports_.waiting(port) * topology.distance(at, to, entropy);
        };
        const std::uint32_t direct = p.path & ~1U;
        p.path = cost(direct) <= cost(p.path | 1U) + setup_.full ? direct : p.path | 1U;
    }
    return setup_.base[kTreeKinds] + topology.next_link(at, to, p.path);
}

// A core switch that joins both pods over live links, `core` or the next one; `core` if there is none.
std::uint32_t Routing::live_core(std::uint32_t pod, std::uint32_t to_pod, std::uint32_t lane,
                                 std::uint32_t core) const {
    const Port* up = &ports_[setup_.base[4] + (pod * setup_.spines + lane) * setup_.cores];
    const Port* down = &ports_[setup_.base[5] + (to_pod * setup_.spines + lane) * setup_.cores];
    for (std::uint32_t i = 0; i < setup_.cores; ++i) {
        const std::uint32_t candidate = (core + i) % setup_.cores;
        if (!up[candidate].avoided && !down[candidate].avoided) {
            return candidate;
        }
    }
    return core;
}

// True when routing knows of no dead link on the way from a leaf over this spine to another leaf.
bool Routing::reaches(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t lane) const {
    if (ports_[setup_.base[2] + leaf * setup_.spines + lane].avoided ||
        ports_[setup_.base[3] + to_leaf * setup_.spines + lane].avoided) {
        return false;
    }
    const std::uint32_t pod = setup_.pod_of_leaf[leaf];
    const std::uint32_t to_pod = setup_.pod_of_leaf[to_leaf];
    if (pod == to_pod) {
        return true;
    }
    const std::uint32_t core = live_core(pod, to_pod, lane, 0);
    return !ports_[setup_.base[4] + (pod * setup_.spines + lane) * setup_.cores + core].avoided &&
           !ports_[setup_.base[5] + (to_pod * setup_.spines + lane) * setup_.cores + core].avoided;
}

std::uint32_t Routing::route_around(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t lane) const {
    for (std::uint32_t i = 0; i < setup_.spines; ++i) {
        const std::uint32_t candidate = (lane + i) % setup_.spines;
        if (reaches(leaf, to_leaf, candidate)) {
            return candidate;
        }
    }
    return lane;
}

// Where a switch sends a packet whose next link is dead, and a leaf one that came down to it for another leaf.
std::uint32_t Routing::detour(const Port& in, std::uint32_t out, Packet& p) const {
    const std::uint32_t to_leaf = setup_.leaf_of_nic[p.destination];
    const bool astray = in.kind == PortKind::leaf_down && in.where != to_leaf;
    const PortKind kind = ports_[out].kind;
    if (astray || (kind == PortKind::leaf_up && ports_[out].down)) {
        const std::uint32_t lane = astray ? in.lane : ports_[out].lane;
        for (std::uint32_t i = 1; i < setup_.spines; ++i) {
            const std::uint32_t candidate = (lane + i) % setup_.spines;
            const std::uint32_t port = setup_.base[2] + in.where * setup_.spines + candidate;
            if (!ports_[port].down && reaches(in.where, to_leaf, candidate)) {
                return port;
            }
        }
        return setup_.base[2] + in.where * setup_.spines + lane;
    }
    if (kind == PortKind::leaf_down && ports_[out].down && (p.flags & kDetours) != kDetours) {
        const std::uint32_t lane = ports_[out].lane;
        const auto leaves = static_cast<std::uint32_t>(setup_.pod_of_leaf.size());
        for (std::uint32_t i = 1; i < leaves; ++i) {
            const std::uint32_t leaf = (to_leaf + i) % leaves;
            const std::uint32_t port = setup_.base[3] + leaf * setup_.spines + lane;
            const bool back = in.kind == PortKind::leaf_up && in.where == leaf;
            if (setup_.pod_of_leaf[leaf] == setup_.pod_of_leaf[to_leaf] && !back && !ports_[port].down) {
                p.flags = static_cast<std::uint8_t>(p.flags + kDetour);
                return port;
            }
        }
    }
    return out;
}

}  // namespace orrery::inline network::packet
