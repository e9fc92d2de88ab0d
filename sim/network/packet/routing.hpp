#pragma once
// Routing: which port a switch sends a packet to, by arithmetic over the fabric's shape, and ways round dead links.
//
// All switches hear that a link is down after `reroute_delay`. Until then packets are lost at it. With `failover` its own switch
// leaves it out at once: a leaf takes another spine, a spine another core switch; what has one way only is still lost. With
// `detour` there is always another way: a spine sends the packet down to another leaf, which sends it up to another spine. Such down-and-up paths let pauses of PFC form a circle, which
// shortest paths of a tree never do: Hu et al., "Tagger: practical PFC deadlock prevention in data center networks",
// CoNEXT 2017, section 2.

#include "sim/network/packet/port.hpp"

namespace orrery::network::packet {

class Routing {
  public:
    Routing(const Setup& setup, Ports& ports, PathChooser& chooser)
        : setup_(setup), ports_(ports), chooser_(chooser), known_(setup.path_needs.weighted ? ports.size() : 0, 1) {
        if (setup.routed != nullptr && setup.path_needs.even && setup.routed->takes_turns()) {
            turns_.resize(std::size_t{setup.routed->switches()} * setup.routed->switches());
        }
    }

    /// Where the switch at the end of the link of `in` sends a packet.
    [[nodiscard]] [[gnu::always_inline]] inline std::uint32_t next_port(const Port& in, Packet& p);
    /// The same for most packets in trees of two levels, so that it can be fetched ahead.
    [[nodiscard]] std::uint32_t likely_port(const Port& in, const Packet& p) const {
        const std::uint32_t to_leaf = setup_.leaf_of_nic[p.destination];
        if (in.where == to_leaf) {
            return setup_.base[1] + p.destination;
        }
        return in.kind == PortKind::nic_out ? setup_.base[2] + in.where * setup_.spines + scale(p.path, setup_.spines)
                                            : setup_.base[3] + to_leaf * setup_.spines + in.lane;
    }
    /// Where it goes instead when the next link is dead, and from a leaf when it came down for another leaf.
    [[nodiscard]] std::uint32_t detour(const Port& in, std::uint32_t out, Packet& p) const;
    /// Switches everywhere learn whether a link is down now, and its rate.
    void learn(std::uint32_t port);
    /// A link went down or came up, which its own switch sees.
    void look();

  private:
    [[nodiscard]] [[gnu::always_inline]] inline std::uint32_t choose_spine(std::uint32_t leaf, std::uint32_t to_leaf,
                                                                           const Packet& p);
    /// The first link between switches, where the topology is no tree, and those after it.
    [[nodiscard]] std::uint32_t first_link(std::uint32_t at, std::uint32_t to, Packet& p);
    [[nodiscard]] std::uint32_t further_link(std::uint32_t at, std::uint32_t to, const Packet& p);
    [[nodiscard]] std::uint32_t route_around(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t lane) const;
    [[nodiscard]] std::uint32_t live_core(std::uint32_t pod, std::uint32_t to_pod, std::uint32_t lane,
                                          std::uint32_t core) const;
    [[nodiscard]] std::uint32_t weighted_spine(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t entropy) const;
    /// A switch does not send over a link of its own that routing knows to be dead, or that it sees to be.
    [[nodiscard]] bool shuns(const Port& own) const { return own.avoided || (own.down && setup_.spec.failover); }
    [[nodiscard]] bool reaches(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t lane) const;
    // Scales a 32-bit entropy to one of `n` ports.
    [[nodiscard]] static std::uint32_t scale(std::uint32_t entropy, std::uint32_t n) {
        return static_cast<std::uint32_t>((static_cast<std::uint64_t>(entropy) * n) >> 32);
    }

    const Setup& setup_;
    Ports& ports_;
    PathChooser& chooser_;
    std::vector<double> known_;  ///< by port: its rate over its normal one as routing knows it; none without weights
    std::vector<std::uint32_t> turns_;  ///< by switch and destination, where packets spread evenly: those sent
    bool any_shunned_ = false;
    bool weighs_ = false;  ///< weights differ
};

std::uint32_t Routing::choose_spine(std::uint32_t leaf, std::uint32_t to_leaf, const Packet& p) {
    const std::uint32_t lane = setup_.path_needs.leaves_choose ? chooser_.choose_lane(leaf, ports_.towards_spines(leaf))
                                                               : scale(p.path, setup_.spines);
    if (weighs_) {
        return weighted_spine(leaf, to_leaf, p.path);
    }
    return any_shunned_ ? route_around(leaf, to_leaf, lane) : lane;
}

// The kinds of trees in turn, as each is a third of all hops.
std::uint32_t Routing::next_port(const Port& in, Packet& p) {
    const Setup& s = setup_;
    const std::uint32_t to = p.destination;
    if (in.kind == PortKind::leaf_down) {
        return s.base[1] + to;
    }
    const std::uint32_t to_leaf = s.leaf_of_nic[to];
    if (in.kind == PortKind::nic_out) {
        if (in.where == to_leaf) {
            return s.base[1] + to;
        }
        if (s.routed != nullptr) [[unlikely]] {
            return first_link(in.where, to_leaf, p);
        }
        return s.base[2] + in.where * s.spines + choose_spine(in.where, to_leaf, p);
    }
    if (in.kind == PortKind::leaf_up) {
        if (!s.tree || s.pod_of_leaf[in.where] == s.pod_of_leaf[to_leaf]) {
            return s.base[3] + to_leaf * s.spines + in.lane;
        }
        // What the choice of the spine left of the entropy chooses the core switch.
        const auto rest = static_cast<std::uint32_t>(static_cast<std::uint64_t>(p.path) * s.spines);
        const std::uint32_t spine = s.pod_of_leaf[in.where] * s.spines + in.lane;
        const std::uint32_t core = scale(rest, s.cores);
        return s.base[4] + spine * s.cores +
               (any_shunned_ ? live_core(s.pod_of_leaf[in.where], s.pod_of_leaf[to_leaf], in.lane, core) : core);
    }
    if (in.kind == PortKind::spine_up) {
        return s.base[5] + (s.pod_of_leaf[to_leaf] * s.spines + in.lane) * s.cores + in.core;
    }
    if (in.kind == PortKind::spine_down) {
        return s.base[3] + to_leaf * s.spines + in.lane;
    }
    if (in.kind >= PortKind::link && in.where != to_leaf) {
        return further_link(in.where, to_leaf, p);
    }
    return s.base[1] + to;
}

}  // namespace orrery::network::packet
