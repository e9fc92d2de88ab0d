#include "sim/network/packet/routing.hpp"

#include <algorithm>

namespace orrery::network::packet {

void Routing::learn(std::uint32_t port) {
    ports_[port].avoided = ports_[port].down;
    if (setup_.path_needs.weighted) {
        const double normal =
            static_cast<double>(setup_.links[static_cast<std::size_t>(ports_[port].kind)].ps_per_byte);
        known_[port] = ports_[port].down ? 0 : normal / static_cast<double>(ports_.link(port).ps_per_byte);
    }
    look();
}

void Routing::look() {
    any_shunned_ = weighs_ = false;
    for (std::uint32_t i = 0; i < ports_.size(); ++i) {
        any_shunned_ = any_shunned_ || shuns(ports_[i]);
        weighs_ = weighs_ || (setup_.path_needs.weighted && (known_[i] != 1 || shuns(ports_[i])));
    }
}

// Spines by the rate of the slower link on their way, of those that lead on; an entropy stands for a share of their sum.
std::uint32_t Routing::weighted_spine(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t entropy) const {
    const auto weight = [&](std::uint32_t lane) {
        const std::uint32_t up = setup_.base[2] + leaf * setup_.spines + lane;
        const std::uint32_t down = setup_.base[3] + to_leaf * setup_.spines + lane;
        return reaches(leaf, to_leaf, lane) ? std::min(known_[up], known_[down]) : 0.0;
    };
    double all = 0;
    for (std::uint32_t lane = 0; lane < setup_.spines; ++lane) {
        all += weight(lane);
    }
    const std::uint32_t plain = scale(entropy, setup_.spines);
    double left = (static_cast<double>(entropy) + 0.5) / 4294967296.0 * all;
    std::uint32_t chosen = plain;
    for (std::uint32_t lane = 0; all > 0 && lane < setup_.spines; ++lane) {
        const double own = weight(lane);
        chosen = own > 0 ? lane : chosen;
        left -= own;
        if (own > 0 && left < 0) {
            break;
        }
    }
    return chosen;
}

// Adaptive topologies choose between the short way and a detour by what waits on the first link of each, times the links of
// the way: UGAL with local information, Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA
// 2008, section 4.1.
std::uint32_t Routing::first_link(std::uint32_t at, std::uint32_t to, Packet& p) {
    const RoutedTopology& topology = *setup_.routed;
    if (topology.adaptive() && p.kind == PacketKind::data) {
        const auto cost = [&](std::uint32_t entropy) {
            const std::uint32_t port = setup_.base[kTreeKinds] + topology.next_link(at, to, entropy);
            return ports_.waiting(port) * topology.distance(at, to, entropy);
        };
        const std::uint32_t direct = p.path & ~1U;
        p.path = cost(direct) <= cost(p.path | 1U) + setup_.full ? direct : p.path | 1U;
    }
    return further_link(at, to, p);
}

// Acknowledgements would take turns away from data, in step with it: they follow their entropy.
std::uint32_t Routing::further_link(std::uint32_t at, std::uint32_t to, const Packet& p) {
    const RoutedTopology& topology = *setup_.routed;
    if (turns_.empty() || p.kind != PacketKind::data) {
        return setup_.base[kTreeKinds] + topology.next_link(at, to, p.path);
    }
    // Each destination begins elsewhere, so that first packets do not all take the first link.
    const std::uint32_t turn = turns_[std::size_t{at} * topology.switches() + to]++;
    return setup_.base[kTreeKinds] + topology.link_in_turn(at, to, turn + at + to);
}

// A core switch that joins both pods over live links, `core` or the next one; `core` if there is none.
std::uint32_t Routing::live_core(std::uint32_t pod, std::uint32_t to_pod, std::uint32_t lane,
                                 std::uint32_t core) const {
    const Port* up = &ports_[setup_.base[4] + (pod * setup_.spines + lane) * setup_.cores];
    const Port* down = &ports_[setup_.base[5] + (to_pod * setup_.spines + lane) * setup_.cores];
    for (std::uint32_t i = 0; i < setup_.cores; ++i) {
        const std::uint32_t candidate = (core + i) % setup_.cores;
        if (!shuns(up[candidate]) && !down[candidate].avoided) {
            return candidate;
        }
    }
    return core;
}

// True when routing knows of no dead link on the way from a leaf over this spine to another leaf.
bool Routing::reaches(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t lane) const {
    if (shuns(ports_[setup_.base[2] + leaf * setup_.spines + lane]) ||
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

}  // namespace orrery::network::packet
