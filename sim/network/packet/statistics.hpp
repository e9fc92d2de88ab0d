#pragma once
// What a packet run counts, and what it says of its ports. Apart from the engine, so that who reports need not know that.

#include "sim/base/namespaces.hpp"
#include "sim/record/table_file.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::network {

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
    double max_queue_bytes = 0;       ///< the longest queue an arriving packet found
    double max_link_bytes = 0;        ///< on the busiest link between switches
    double max_link_utilisation = 0;  ///< the largest of the ports
    std::uint64_t peak_packets = 0;   ///< in flight at once
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
    double utilisation = 0;  ///< bytes over what the link could carry from the start of the run to the last arrival
};

/// What the flows of one message did in the time since the sample before; what they do not have is not a number.
struct FlowSample {
    double time = 0;          ///< s
    std::uint64_t token = 0;  ///< as FlowCounts::token
    double window = 0;        ///< bytes, of all its flows together, as it is now
    double pace = 0;          ///< B/s that its congestion control sets, all flows together, as it is now
    double rate = 0;          ///< B/s on the wire that it has sent
    double marked = 0;        ///< of the data packets that came, the share with a mark
};

/// When a message between nodes went, and which. Times are those of the run, s.
struct FlowTime {
    std::uint32_t owner = 0;  ///< number of the listener that its activity tells
    std::uint32_t from = 0;   ///< GPU
    std::uint32_t to = 0;     ///< GPU
    double bytes = 0;
    double start = 0;
    double end = 0;  ///< not a number: it was cancelled
};

/// What became of the packets of one message between nodes.
struct FlowCounts {
    std::uint64_t token = 0;            ///< as its job names it, or its number in the order of sending
    std::uint64_t paths = 0;            ///< that its data packets came by
    std::uint64_t sent = 0;             ///< data packets, those sent again among them
    std::uint64_t bytes = 0;            ///< of these, on the wire
    std::uint64_t retransmissions = 0;  ///< of them
    std::uint64_t needless = 0;         ///< data packets that came whole though they had come before
    std::uint64_t trims = 0;
    std::uint64_t drops = 0;  ///< data packets, whole or trimmed, that were lost
    std::uint64_t marks = 0;  ///< set by ports
    std::uint64_t timeouts = 0;
    std::uint64_t arrived = 0;         ///< data packets, whole or trimmed
    std::uint64_t arrived_marked = 0;  ///< of them

    /// What another part of the network counts of the same message.
    void add(const FlowCounts& other);
};

/// What a port's queue held at one time; times at which it held nothing are left out.
struct QueueSample {
    double time = 0;  ///< s
    std::uint32_t port = 0;
    double bytes = 0;
};

struct PacketReport {
    std::vector<PortReport> ports;
    std::vector<QueueSample> samples;      ///< in the order of time, then port
    std::vector<FlowSample> flow_samples;  ///< in the order of time, then sending
    std::vector<FlowCounts> flows;         ///< in the order of sending; empty unless asked for
};
[[nodiscard]] std::string ports_csv(const PacketReport& report);
[[nodiscard]] std::string queues_csv(const PacketReport& report);
/// Refers to the report.
[[nodiscard]] Table flow_sample_table(const PacketReport& report);

}  // namespace orrery::network
