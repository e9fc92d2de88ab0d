#pragma once
// What topologies share whose switches forward along shortest paths (or by a rule of their own) from link to link: routes,
// shares of sprayed flows and the next hops of packets, all from one function that names the next links.

#include "sim/network/topology/topology.hpp"

namespace orrery::network {

/// How far apart switches are at most.
struct Reach {
    std::uint32_t links = 0;
    double latency = 0;  ///< s, of those links
};

/// A link as a part of a ring of nodes.
struct LinkTurn {
    std::uint16_t dimension = 0;  ///< of a product; all others: 0
    bool dateline = false;        ///< between the last place of a ring and its first, either way
};

/// Some links; up to 16 of them without memory of their own.
class LinkSet {
  public:
    void add(std::uint32_t link) {
        if (count_ < few_.size()) {
            few_[count_] = link;
        } else {
            more_.push_back(link);
        }
        ++count_;
    }
    [[nodiscard]] std::uint32_t size() const { return count_; }
    [[nodiscard]] std::uint32_t operator[](std::uint32_t place) const {
        return place < few_.size() ? few_[place] : more_[place - few_.size()];
    }

  private:
    std::array<std::uint32_t, 16> few_;
    std::uint32_t count_ = 0;
    std::vector<std::uint32_t> more_;
};

class RoutedTopology : public Topology {
  public:
    /// Links in runs of equal rate: packets count queues in time at the rate of a run.
    [[nodiscard]] std::vector<SwitchLink> links() const override { return links_; }
    [[nodiscard]] std::string resource_name(std::uint32_t resource) const override;
    void route(Route& route, std::uint32_t first, std::uint32_t from_nic, std::uint32_t to_nic, PathChoice choice,
               std::uint64_t hash) const override;

    /// Links over which a switch may send towards another, all equally good, in a fixed order. `entropy` decides what is
    /// decided once for a path. Precondition: different switches.
    [[nodiscard]] virtual LinkSet next_links(std::uint32_t at, std::uint32_t to, std::uint32_t entropy) const = 0;
    /// The one of them that an entropy picks.
    [[nodiscard]] std::uint32_t next_link(std::uint32_t at, std::uint32_t to, std::uint32_t entropy) const;
    /// Relative part of sprayed traffic to a switch that one of its next links takes.
    [[nodiscard]] virtual double weight(std::uint32_t /*link*/, std::uint32_t /*to*/) const { return 1; }
    /// Whether switches send sprayed packets over their next links in turn, by weight; else each packet's entropy decides.
    [[nodiscard]] virtual bool takes_turns() const { return false; }
    /// The next link whose turn it is: any run of turns gives each link its weight, within a packet or two.
    [[nodiscard]] std::uint32_t link_in_turn(std::uint32_t at, std::uint32_t to, std::uint32_t turn) const;
    /// Among how many ways the entropy decides at the start of a path; sprayed flows take all of them.
    [[nodiscard]] virtual std::uint32_t ways() const { return 1; }
    /// True when the first switch of a path chooses between next_link with an even entropy (the short way) and an odd one.
    [[nodiscard]] virtual bool adaptive() const { return false; }
    /// B/s that one connection reaches between two switches; 0: no limit.
    [[nodiscard]] virtual double connection_limit(std::uint32_t /*from*/, std::uint32_t /*to*/) const { return 0; }
    /// s by which a message of so many bytes arrives later because its connections start slowly.
    [[nodiscard]] virtual double slow_start(std::uint32_t /*from*/, std::uint32_t /*to*/, double /*bytes*/) const {
        return 0;
    }
    /// Where one of the links leads, as far as it is one of a ring's.
    [[nodiscard]] virtual LinkTurn turn(std::uint32_t /*link*/) const { return {}; }
    /// Whether there are such rings, with one way round for each pair of places.
    [[nodiscard]] virtual bool has_rings() const { return false; }
    /// Links between two switches by this entropy.
    [[nodiscard]] std::uint32_t distance(std::uint32_t from, std::uint32_t to, std::uint32_t entropy) const;
    /// Switches that NICs hang on; their numbers come first.
    [[nodiscard]] virtual std::uint32_t edge_switches() const { return switches(); }
    /// At least as far as any two of them are apart.
    [[nodiscard]] virtual Reach reach() const;
    /// One of the links; topologies with millions of them compute it.
    [[nodiscard]] virtual SwitchLink link(std::uint32_t number) const { return links_[number]; }

    [[nodiscard]] double host_latency() const override { return host_latency_; }

    /// The entropy that a hashed flow has at every fidelity.
    static constexpr std::uint32_t kEntropies = 256;
    [[nodiscard]] static std::uint32_t entropy_of(std::uint64_t pick) {
        return static_cast<std::uint32_t>(((pick % kEntropies) * 2 + 1) << 23U);
    }

  protected:
    explicit RoutedTopology(double host_latency) : host_latency_(host_latency) {}
    /// Adds a link, and the resource of the same number.
    std::uint32_t add_link(const SwitchLink& link);

    /// From the first switch to any other that NICs hang on.
    [[nodiscard]] Reach reach_from_first() const;

    std::vector<SwitchLink> links_;

  private:
    [[nodiscard]] double add_spread(Route& route, std::uint32_t first, std::uint32_t from, std::uint32_t to) const;

    double host_latency_;
};

}  // namespace orrery::network
