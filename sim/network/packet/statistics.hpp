#pragma once
// What a packet run counts, and what it says of its ports. Apart from the engine, so that who reports need not know that.

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::inline network {

/// Counts of a packet run. Hops: packets that have left a port, of NICs and switches.
struct PacketStatistics {
    std::uint64_t packets_delivered = 0;  ///< distinct data packets
    std::uint64_t packet_hops = 0;        ///< of data packets
    std::uint64_t control_hops = 0;       ///< of acknowledgements and their like
    std::uint64_t drops = 0;
    std::uint64_t trims = 0;
    std::uint64_t retransmissions = 0;
    std::uint64_t ecn_marks = 0;
    std::uint64_t timeouts = 0;
    std::uint64_t corrupted = 0;
    double pause_s = 0;        ///< summed over ports
    bool watched = false;      ///< pauses that last too long are looked for
    std::uint64_t storms = 0;  ///< of them that were found
    std::uint64_t storm_drops = 0;
    double max_queue_bytes = 0;  ///< the longest queue an arriving packet found
    double max_link_bytes = 0;   ///< on the busiest link between switches
    double max_link_utilisation = 0;
    std::uint64_t peak_packets = 0;  ///< in flight at once
    std::uint64_t events = 0;
    bool skips = false;         ///< steady stretches were looked for
    std::uint64_t skipped = 0;  ///< of the packets delivered: not simulated one by one
    double skip_error =
        0;  ///< relative error of completion times from that, as estimated: the mean over packets delivered
};

/// One output port's share of a run.
struct PortReport {
    std::string name;
    double bytes = 0;
    std::uint64_t packets = 0;
    std::uint64_t marks = 0;
    std::uint64_t drops = 0;
    std::uint64_t trims = 0;
    double mean_queue_bytes = 0;
    double max_queue_bytes = 0;
    double paused_s = 0;
};

/// What a port's queue held at one time; times at which it held nothing are left out.
struct QueueSample {
    double time = 0;  ///< s
    std::uint32_t port = 0;
    double bytes = 0;
};

struct PacketReport {
    std::vector<PortReport> ports;
    std::vector<QueueSample> samples;  ///< in the order of time, then port
};
[[nodiscard]] std::string ports_csv(const PacketReport& report);
[[nodiscard]] std::string queues_csv(const PacketReport& report);

}  // namespace orrery::inline network
