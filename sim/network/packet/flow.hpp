#pragma once
// Flows: messages, or their subflows, between two NICs, with the bitmaps of what has arrived and what is lost.

#include "sim/network/packet/clock.hpp"
#include "sim/network/packet/flow_log.hpp"
#include "sim/network/packet/packet.hpp"
#include "sim/network/packet/setup.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace orrery::network::packet {

/// A message, or one of its subflows, between two NICs. Sender and receiver state in one place: what a packet that arrives touches lies
/// in the first cache line, what one that leaves does in the first three.
struct alignas(64) Flow {
    std::uint32_t source = 0;       ///< NIC
    std::uint32_t destination = 0;  ///< NIC
    std::uint32_t packets = 0;
    bool live = false;
    bool started = false;
    bool listed = false;            ///< among its NIC's flows that may send
    bool waiting_pace = false;      ///< a pacing event will list it again
    bool timer_armed = false;       ///< a retransmission timer is pending in the heap
    bool congestion_armed = false;  ///< a timer of the congestion control is pending
    bool cancelled = false;         ///< its message does not complete; the slot stays, as events may still name it
    bool speculates = false;        ///< its credit is its own, as its receiver has not been heard
    bool probed = false;            ///< a probe has been sent since it heard of an arrival
    bool nack_sent = false;         ///< go-back-N receiver: the present gap has been reported
    std::uint8_t backoff = 0;       ///< successive timeouts without progress
    std::uint8_t traffic_class = 0;
    std::uint32_t records = 0;        ///< packets of either direction that exist
    std::uint32_t reduction = kNone;  ///< in which it takes part
    std::uint32_t capacity = 0;       ///< bits of each of its bitmaps: packets from `acked` on that can be told apart
    std::uint32_t bitmap = 0;         ///< first word of its three bitmaps: acknowledged, lost, received

    // Receiver.
    std::uint32_t expected = 0;     ///< all before it have arrived
    std::uint32_t received = 0;     ///< distinct packets
    std::uint32_t untold = 0;       ///< packets that came since the last acknowledgement
    std::uint32_t untold_low = 0;   ///< the first of them
    std::uint32_t untold_high = 0;  ///< the last of them

    // Sender.
    std::uint32_t last_payload = 0;  ///< bytes of the last packet
    std::uint32_t next_new = 0;      ///< first packet never sent
    std::uint32_t acked = 0;         ///< all before it have been acknowledged
    std::uint32_t highest = 0;       ///< one beyond the highest acknowledged packet
    std::uint32_t lost = 0;          ///< packets to send again
    std::uint32_t sent_high = 0;     ///< one beyond the highest packet ever sent
    std::uint32_t scanned = 0;       ///< gaps before this have been judged by reordering
    std::uint32_t ahead = kNone;     ///< packets from `acked` on that it may send; none: any number
    std::uint32_t next_flow = kNone;
    std::int64_t in_flight = 0;  ///< bytes on the wire
    double window = 0;           ///< bytes
    double rate = 0;             ///< B/s; 0: as the link allows
    std::int64_t next_time = 0;  ///< ps, pacing
    FlowPath path;
    std::int64_t deadline = 0;    ///< ps, of the retransmission timer
    std::int64_t last_news = 0;   ///< ps, when an acknowledgement last told of an arrival
    std::int64_t round_trip = 0;  ///< ps, smoothed
    std::int64_t timeout = 0;     ///< ps, of its path
    std::uint32_t overtaken = 0;  ///< `highest` when the deadline was set: gaps before it are lost when it passes
    std::uint32_t message = 0;
    CongestionState congestion;

    // Of both, in some runs.
    double rate_limit = 0;       ///< B/s, given by the workload; 0: none
    std::int64_t credits = 0;    ///< receiver-driven: bytes that may be sent
    std::uint64_t credited = 0;  ///< bytes, the last total that a credit packet told of
    std::uint64_t asked = 0;     ///< bytes, the largest total that it has asked for
    std::uint64_t wanted = 0;    ///< receiver-driven: bytes of credit in all that are to be given
    std::uint64_t given = 0;     ///< bytes of credit in all, which every credit packet tells
    std::uint32_t next_grant = kNone;
    bool grant_listed = false;
    std::int64_t last_notification = 0;
    std::uint32_t queue_pair = 0;  ///< of those between its NICs
    std::uint32_t next_in_pair = kNone;
    std::int64_t earliest = 0;  ///< ps: not to start before
};

/// Packets of a run, and what became of them. Data packets of senders, receivers and drops are equal in the end.
struct PacketCounts {
    std::uint64_t sent = 0, arrived = 0, destroyed = 0;  ///< data packets, whole or trimmed
    std::uint64_t delivered = 0;                         ///< distinct data packets
    std::uint64_t retransmissions = 0;
    std::uint64_t timeouts = 0;
    double payload = 0;  ///< bytes delivered

    void add(const PacketCounts& other) {
        sent += other.sent;
        arrived += other.arrived;
        destroyed += other.destroyed;
        delivered += other.delivered;
        retransmissions += other.retransmissions;
        timeouts += other.timeouts;
        payload += other.payload;
    }
};

/// All flows of a run. A reference is good until the next `take`.
class Flows {
  public:
    /// `whole`: all senders and receivers are here; else slots are given back with `collect`.
    Flows(const Setup& setup, Slab& slab, bool whole)
        : log(setup.counts_flows ? std::make_unique<FlowLog>() : nullptr), setup_(setup), slab_(slab), whole_(whole) {}

    [[nodiscard]] Flow& operator[](std::uint32_t id) { return flows_[id]; }
    [[nodiscard]] const Flow& operator[](std::uint32_t id) const { return flows_[id]; }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(flows_.size()); }

    /// Fetches what a packet of a flow touches where it arrives, and what its sender does with it.
    void fetch_receiver(std::uint32_t id) const { __builtin_prefetch(&flows_[id]); }
    void fetch_sender(std::uint32_t id) const {
        __builtin_prefetch(&flows_[id]);
        __builtin_prefetch(&flows_[id].next_new);
        __builtin_prefetch(&flows_[id].path);
    }

    /// A fresh flow in the first free slot, so that which slot that is does not depend on the order in which slots became free.
    /// Throws InfeasibleError beyond 2^24.
    [[nodiscard]] std::uint32_t take();
    /// Sender and receiver are done with a flow; its slot is free once no packet and no timer names it.
    void retire(std::uint32_t id);
    /// A timer of a flow that is no more has run out.
    void free_if_done(std::uint32_t id) {
        const Flow& flow = flows_[id];
        if (whole_ && flow.records == 0 && !flow.live && !flow.timer_armed && !flow.congestion_armed) {
            release(id);
        }
    }
    /// Frees a slot. Precondition: nothing in any part of the network names it.
    void release(std::uint32_t id);
    /// Flows that were retired here since the last call, where this is not all of the network.
    [[nodiscard]] std::vector<std::uint32_t> retired() { return std::exchange(retired_, {}); }
    /// `capacity`: a power of two, 64 or more. Gives back what it had.
    void give_bitmaps(Flow& flow, std::uint32_t capacity);

    /// A list that named a flow no longer does.
    void let_go(std::uint32_t flow) {
        --flows_[flow].records;
        free_if_done(flow);
    }
    /// A packet is no more.
    void discard(std::uint32_t packet) {
        const std::uint32_t flow = slab_[packet].flow;
        slab_.give(packet);
        let_go(flow);
    }
    /// A packet is lost on its way.
    void drop(std::uint32_t packet);

    [[nodiscard]] std::uint32_t size_of(const Flow& flow, std::uint32_t sequence) const {
        return (sequence + 1 == flow.packets ? flow.last_payload : setup_.mtu) + setup_.header;
    }

    /// Whether a packet is to be written after all before it.
    [[nodiscard]] bool synchronises(const Flow& flow, std::uint32_t sequence) const {
        const std::uint32_t operation = setup_.transport.operation;
        return operation > 0 && flow.reduction == kNone &&
               ((sequence + 1) % operation == 0 || sequence + 1 == flow.packets);
    }

    // Three bitmaps a flow, in a pool: their words lie side by side in turn.
    enum class Bits : std::uint32_t { acknowledged, lost, received };
    [[nodiscard]] std::uint64_t& word(const Flow& flow, Bits kind, std::uint32_t sequence) {
        return bitmaps_[flow.bitmap + 3 * ((sequence & (flow.capacity - 1)) / 64) + static_cast<std::uint32_t>(kind)];
    }
    /// 64 bits from `sequence` on; those beyond the flow's capacity repeat earlier ones.
    [[nodiscard]] std::uint64_t bits_from(const Flow& flow, Bits kind, std::uint32_t sequence) {
        const unsigned shift = sequence & 63;
        const std::uint64_t low = word(flow, kind, sequence) >> shift;
        return shift == 0 ? low : low | (word(flow, kind, sequence + 64 - shift) << (64 - shift));
    }
    [[nodiscard]] bool test(const Flow& flow, Bits kind, std::uint32_t sequence) {
        return ((word(flow, kind, sequence) >> (sequence & 63)) & 1) != 0;
    }
    void set(const Flow& flow, Bits kind, std::uint32_t sequence) {
        word(flow, kind, sequence) |= 1ULL << (sequence & 63);
    }
    /// Sets those of 64 bits from `sequence` on that are set here. Precondition: the flow's bitmaps hold so many.
    void set_from(const Flow& flow, Bits kind, std::uint32_t sequence, std::uint64_t bits) {
        const unsigned shift = sequence & 63;
        word(flow, kind, sequence) |= bits << shift;
        if (shift != 0) {
            word(flow, kind, sequence + 64 - shift) |= bits >> (64 - shift);
        }
    }
    /// Clears them.
    void clear_from(const Flow& flow, Bits kind, std::uint32_t sequence, std::uint64_t bits) {
        const unsigned shift = sequence & 63;
        word(flow, kind, sequence) &= ~(bits << shift);
        if (shift != 0) {
            word(flow, kind, sequence + 64 - shift) &= ~(bits >> (64 - shift));
        }
    }
    void clear(const Flow& flow, Bits kind, std::uint32_t sequence) {
        word(flow, kind, sequence) &= ~(1ULL << (sequence & 63));
    }
    /// The first packet to send again. Precondition: there is one.
    [[nodiscard]] std::uint32_t first_lost(const Flow& flow) const;

    /// A flow goes on later, with later packets: moves each of its times and numbers of packets, and its bitmaps. What its
    /// receiver has got and its sender been told of becomes as much more.
    void shift(std::uint32_t flow, const Shift& by);

    [[nodiscard]] std::size_t memory() const {
        return flows_.capacity() * sizeof(Flow) + bitmaps_.capacity() * 8 + (log ? log->memory() : 0);
    }

    std::unique_ptr<FlowLog> log;  ///< none: nobody asks what became of single messages
    PacketCounts counts;
    std::uint32_t close_at =
        kNone;                ///< packets that a flow lacks and counts as close to its end with; none: not counted
    std::uint64_t close = 0;  ///< flows that lack so few at their receiver, or fewer

  private:
    void take_back_bitmaps(const Flow& flow);
    void turn(const Flow& flow, Bits kind, std::uint32_t packets);

    const Setup& setup_;
    Slab& slab_;
    HugeVector<Flow> flows_;
    bool whole_;
    std::vector<std::uint32_t> free_;     ///< heap, the least first
    std::vector<std::uint32_t> retired_;  ///< where this is not all of the network
    HugeVector<std::uint64_t> bitmaps_;
    std::vector<std::vector<std::uint32_t>> free_bitmaps_;  ///< by the logarithm of their capacity
};

}  // namespace orrery::network::packet
