#pragma once
// The records of the packet engine: packets in a slab, ports, flows. Indices are 32 bits wide.

#include "sim/base/error.hpp"
#include "sim/network/path/path.hpp"
#include "sim/network/transport/transport.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace orrery::packet {

inline constexpr std::uint32_t kNone = 0xFFFFFFFFU;

enum class PacketKind : std::uint8_t { data, trimmed, ack, nack, notification, credit };

/// Bits of Packet::flags.
inline constexpr std::uint8_t kMarked = 1;     ///< congestion experienced
inline constexpr std::uint8_t kReduces = 2;    ///< of an all-reduce in the switches: a contribution, or a sum
inline constexpr std::uint8_t kDestroyed = 4;  ///< was on a link that went down
inline constexpr std::uint8_t kAsks = 8;       ///< the sender waits: acknowledge at once
inline constexpr std::uint8_t kDetour = 16;    ///< one way round a dead link; two bits count them
inline constexpr std::uint8_t kDetours = 48;   ///< both bits: no more are taken

/// A packet under way, or queued.
struct Packet {
    std::int64_t arrival;    ///< ps, at the far end of the link it is on
    std::int64_t sent;       ///< ps, when its data packet left the sender; acknowledgements echo it
    std::uint64_t selected;  ///< acknowledgement: bit i: packet `sequence` + i has arrived
    std::uint32_t next;      ///< behind it on its link or in its queue; in the free list
    std::uint32_t flow;
    std::uint32_t sequence;     ///< number of the data packet
    std::uint32_t cumulative;   ///< acknowledgement: all packets before this one have arrived
    std::uint32_t size;         ///< bytes on the wire
    std::uint32_t destination;  ///< NIC
    std::uint32_t path;         ///< entropy: scaled to the number of ports where a choice is
    std::uint32_t ingress;      ///< port whose link brought it into the present switch
    PacketKind kind;
    std::uint8_t flags;
};
static_assert(sizeof(Packet) <= 64);

/// All packets of a run. A reference is good until the next `take`.
class Slab {
  public:
    [[nodiscard]] Packet& operator[](std::uint32_t id) { return packets_[id]; }
    [[nodiscard]] const Packet& operator[](std::uint32_t id) const { return packets_[id]; }

    [[nodiscard]] std::uint32_t take() {
        ++in_use_;
        if (free_ != kNone) {
            const std::uint32_t id = free_;
            free_ = packets_[id].next;
            return id;
        }
        if (packets_.size() >= kMost) {
            throw InfeasibleError("more than 100 million packets under way: a transport with a window needs less");
        }
        packets_.emplace_back();
        return static_cast<std::uint32_t>(packets_.size() - 1);
    }
    void give(std::uint32_t id) {
        --in_use_;
        packets_[id].next = free_;
        free_ = id;
    }
    [[nodiscard]] std::size_t in_use() const { return in_use_; }
    [[nodiscard]] std::size_t peak() const { return packets_.size(); }

  private:
    static constexpr std::size_t kMost = 100'000'000;  // 6 GiB
    std::vector<Packet> packets_;
    std::uint32_t free_ = kNone;
    std::size_t in_use_ = 0;
};

/// A first-in-first-out list of packets.
struct PacketList {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;

    void push(Slab& slab, std::uint32_t id) {
        slab[id].next = kNone;
        if (head == kNone) {
            head = id;
        } else {
            slab[tail].next = id;
        }
        tail = id;
    }
    std::uint32_t pop(const Slab& slab) {
        const std::uint32_t id = head;
        head = slab[id].next;
        return id;
    }
};

/// What a port's link joins, in the direction of its traffic.
enum class PortKind : std::uint8_t { nic_out, nic_in, leaf_up, leaf_down, spine_up, spine_down };
inline constexpr std::size_t kPortKinds = 6;

/// An output port with its link. What every hop touches comes first.
struct Port {
    std::int64_t busy_until = 0;    ///< ps, when what it has accepted will have left
    std::int64_t latency = 0;       ///< ps
    std::int64_t full_time = 0;     ///< ps, to send a full data packet
    std::uint64_t ps_per_byte = 0;  ///< 2^-32 ps
    PacketList link;                ///< packets on the link, with those that wait when departures are known
    std::uint32_t where = 0;        ///< leaf of nic_out, leaf_up, leaf_down; spine of spine_up and _down; NIC of nic_in
    std::uint16_t lane = 0;         ///< the spine's number within its pod
    std::uint16_t core = 0;         ///< the core switch's number within its spine
    PortKind kind = PortKind::nic_out;
    bool down = false;
    bool avoided = false;               ///< routing knows that it is down
    bool paused = false;                ///< data may not leave
    std::uint64_t bytes = 0;            ///< of all packets
    std::uint64_t packets[2] = {0, 0};  ///< data packets; acknowledgements and their like
    std::int64_t max_backlog = 0;       ///< ps of service time that an arriving packet found before it
    double backlog_area = 0;            ///< ps^2, the integral of the backlog over time
    std::uint64_t marks = 0;
    std::uint64_t drops = 0;
    std::uint64_t trims = 0;
    std::int64_t paused_time = 0;  ///< ps
};

/// Queues of a port whose departures are decided packet by packet (priorities, pause, trimming, shared buffer, faults).
struct ServedPort {
    PacketList control;
    PacketList data;
    std::int64_t control_bytes = 0;
    std::int64_t data_bytes = 0;
    std::int64_t ingress_bytes = 0;  ///< waiting in the switch at the end of this link, having come over it
    std::uint32_t control_run = 0;   ///< control packets since the last of data
    std::int64_t paused_since = 0;   ///< ps, of the present pause
    bool pause_sent = false;         ///< by the switch at the end of this link
};

/// What a leaf knows of its ports to the spines.
struct LeafPorts {
    const Port* up = nullptr;
    const ServedPort* queues = nullptr;  ///< none: departures are known on arrival
    std::uint32_t packet = 0;            ///< bytes of a full one
    std::int64_t now = 0;                ///< ps

    /// ps, when this port will be free; never, when routing knows that its link is dead.
    [[nodiscard]] std::int64_t free_at(std::uint32_t lane) const {
        const std::int64_t waiting = queues != nullptr ? queues[lane].data_bytes : 0;
        return up[lane].avoided ? std::numeric_limits<std::int64_t>::max()
                                : std::max(up[lane].busy_until, now) + waiting * packet;
    }
};

/// A message, or one of its subflows, between two NICs. Sender and receiver state in one place.
struct Flow {
    std::uint32_t source = 0;       ///< NIC
    std::uint32_t destination = 0;  ///< NIC
    std::uint32_t packets = 0;
    std::uint32_t last_payload = 0;  ///< bytes of the last packet
    std::uint32_t message = 0;
    bool live = false;
    bool started = false;
    bool listed = false;            ///< among its NIC's flows that may send
    bool waiting_pace = false;      ///< a pacing event will list it again
    bool timer_armed = false;       ///< a retransmission timer is pending in the heap
    bool congestion_armed = false;  ///< a timer of the congestion control is pending
    bool cancelled = false;         ///< its message does not complete; the slot stays, as events may still name it
    bool nack_sent = false;         ///< go-back-N receiver: the present gap has been reported
    std::uint8_t backoff = 0;       ///< successive timeouts without progress

    // Sender.
    std::uint32_t next_new = 0;   ///< first packet never sent
    std::uint32_t acked = 0;      ///< all before it have been acknowledged
    std::uint32_t highest = 0;    ///< one beyond the highest acknowledged packet
    std::uint32_t lost = 0;       ///< packets to send again
    std::uint32_t sent_high = 0;  ///< one beyond the highest packet ever sent
    std::uint32_t scanned = 0;    ///< gaps before this have been judged by reordering
    std::uint32_t capacity = 0;   ///< bits of each of its bitmaps: packets from `acked` on that can be told apart
    std::uint32_t ahead = 0;      ///< packets from `acked` on that it may send; 0: any number
    std::uint32_t records = 0;    ///< packets of either direction that exist
    std::uint32_t next_flow = kNone;
    std::int64_t in_flight = 0;   ///< bytes on the wire
    double window = 0;            ///< bytes
    double rate = 0;              ///< B/s; 0: as the link allows
    double rate_limit = 0;        ///< B/s, given by the workload; 0: none
    std::int64_t next_time = 0;   ///< ps, pacing
    std::int64_t deadline = 0;    ///< ps, of the retransmission timer
    std::int64_t last_news = 0;   ///< ps, when an acknowledgement last told of an arrival
    std::int64_t round_trip = 0;  ///< ps, smoothed
    std::uint32_t overtaken = 0;  ///< `highest` when the deadline was set: gaps before it are lost when it passes
    std::uint64_t credits = 0;    ///< receiver-driven: packets that may be sent

    std::uint32_t reduction = kNone;  ///< in which it takes part

    std::uint32_t queue_pair = 0;  ///< of those between its NICs
    std::uint32_t next_in_pair = kNone;
    std::int64_t earliest = 0;  ///< ps: not to start before

    FlowPath path;

    // Receiver.
    std::uint32_t expected = 0;     ///< all before it have arrived
    std::uint32_t received = 0;     ///< distinct packets
    std::uint32_t untold = 0;       ///< packets that came since the last acknowledgement
    std::uint32_t untold_low = 0;   ///< the first of them
    std::uint32_t untold_high = 0;  ///< the last of them
    std::uint32_t granted = 0;      ///< receiver-driven: packets that credits have been given for
    std::uint32_t next_grant = kNone;
    bool grant_listed = false;
    std::int64_t last_notification = 0;

    std::uint32_t bitmap = 0;  ///< first word of its three bitmaps: acknowledged, lost, received
    CongestionState congestion;
};

}  // namespace orrery::packet
