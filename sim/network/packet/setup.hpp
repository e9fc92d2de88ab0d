#pragma once
// What is fixed before the first packet: the fabric's shape kept flat for the hot path, sizes, windows, timeouts.

#include "sim/network/fabric.hpp"
#include "sim/network/packet/packet.hpp"
#include "sim/network/packet/spec.hpp"
#include "sim/network/topology/routed.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::network::packet {

/// What a port's link joins, in the direction of its traffic.
enum class PortKind : std::uint8_t { nic_out, nic_in, leaf_up, leaf_down, spine_up, spine_down, link };
/// Elsewhere than in trees, links between switches are of kind `link` and the following, one for each rate.
inline constexpr std::size_t kTreeKinds = 6;
inline constexpr std::size_t kPortKinds = 38;

/// Links of one kind as they are without faults.
struct LinkKind {
    std::uint32_t count = 0;
    std::int64_t latency = 0;       ///< ps
    std::int64_t full_time = 0;     ///< ps, to send a full data packet
    std::uint64_t ps_per_byte = 0;  ///< 2^-32 ps; 0: no rate, its links are down
};

/// Limits of the queues of one kind of port, as times to send at the kind's normal rate, ps.
struct QueueLimits {
    std::int64_t drop = kNoTimer;
    std::int64_t mark_low = kNoTimer;
    std::int64_t mark_high = kNoTimer;
};

[[nodiscard]] inline std::int64_t send_time(std::uint64_t ps_per_byte, std::uint32_t bytes) {
    __extension__ using Wide = unsigned __int128;
    const auto ps = static_cast<std::int64_t>((static_cast<Wide>(ps_per_byte) * bytes + (1ULL << 31)) >> 32);
    return ps > 0 ? ps : 1;  // time must pass, or a sender would never stop
}

/// Bytes that a link sends in this time.
[[nodiscard]] inline double bytes_in(std::uint64_t ps_per_byte, std::int64_t ps) {
    return ps_per_byte > 0 ? static_cast<double>(ps) * 4294967296.0 / static_cast<double>(ps_per_byte) : 0;
}

struct Setup {
    /// Throws ConfigError when the specification contradicts itself, InfeasibleError when no fabric fits.
    Setup(const Fabric& fabric, const PacketSpec& spec, bool links_change, const Transport& transport,
          const PathChooser& chooser);

    const Fabric& fabric;
    PacketSpec spec;
    std::uint32_t mtu;
    std::uint32_t header;
    std::uint32_t full;  ///< bytes of a full packet on the wire

    std::uint32_t nics = 0;
    std::uint32_t spines = 1;
    std::uint32_t cores = 1;
    bool tree = false;
    std::uint32_t base[kPortKinds + 1] = {};  ///< first port of each kind; then the number of ports
    const RoutedTopology* routed = nullptr;   ///< null: a tree
    std::vector<SwitchLink> switch_links;     ///< of a topology that is no tree, in the order of their ports
    std::vector<std::uint32_t> leaf_of_nic;   ///< the switch that a NIC hangs on
    std::vector<std::uint32_t> pod_of_leaf;
    LinkKind links[kPortKinds];
    QueueLimits limits[kPortKinds];

    TransportNeeds transport;
    PathNeeds path_needs;
    PathSet paths;
    bool served = false;                ///< ports decide departures one by one
    bool laned = false;                 ///< and have a queue for each lane
    std::vector<ClassSpec> classes;     ///< one at least
    std::uint32_t lanes_per_class = 1;  ///< 2: with a dateline
    std::uint32_t lanes = 1;
    bool waits_for_room = false;       ///< switches pause links, or give them credits
    std::vector<LinkTurn> link_turns;  ///< of links between switches, with a dateline
    bool go_back = false;
    bool notifies = false;  ///< receivers report marks

    CongestionSettings congestion;
    std::int64_t longest = 1;           ///< ps, how far ahead of its departure a packet's arrival can lie
    std::int64_t timeout = 0;           ///< ps, on the longest path
    bool nothing_lost = false;          ///< no packet can be: queues have no limit, and links stay as they are
    std::int64_t patience = 0;          ///< ps of silence within which a watchdog may still let packets through
    std::int64_t notification_gap = 0;  ///< ps
    std::uint32_t reorder = 0;          ///< packets; 0: off
    bool counts_flows = false;          ///< there is a FlowLog
    bool more_to_send = false;          ///< a sender has more to do with a packet than most transports want
    bool more_to_hear = false;          ///< and with an acknowledgement, before the transport hears of it
    bool more_to_tell = false;          ///< and after it has
    std::int64_t probe = 0;             ///< ps at least without news until a flow probes; 0: never
    bool by_time = false;               ///< what was sent later and has arrived proves a loss
    std::int64_t reorder_time = 0;      ///< ps later; 0: a flow's smoothed round trip
    std::uint32_t tell_every = 1;       ///< packets an acknowledgement
    /// Bytes of a window below which each packet asks for one: it may shrink to less than what the receiver keeps to itself.
    double ask_below = 0;
    std::uint32_t capacity = 256;  ///< most bits of a bitmap

    [[nodiscard]] std::uint32_t ports() const { return base[kPortKinds]; }
    /// ps without news after which what a flow between two NICs has under way counts as lost. `entropy`: of its path.
    [[nodiscard]] std::int64_t timeout_between(std::uint32_t from_nic, std::uint32_t to_nic,
                                               std::uint32_t entropy) const;

  private:
    void add_links(std::size_t kind, std::uint32_t count, double rate, double latency_s);
    void add_tree(const TreeTopology& of);
    void add_switch_links();
    void set_windows();
    void set_lanes();
    void set_recovery(double slowest_nic, std::int64_t round_trip);
    [[nodiscard]] std::int64_t drain(std::size_t kind) const;

    bool links_change_ = false;
    double pause_default_ = 0;     ///< bytes
    double headroom_default_ = 0;  ///< bytes
    std::int64_t slow_nics_ = 0;   ///< ps, what a window of the fastest NIC may wait for the slowest
    void set_limits();
};

}  // namespace orrery::network::packet
