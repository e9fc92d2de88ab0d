#pragma once
// Output ports with their queues and links: who may send when, what is dropped, trimmed, marked or paused.
//
// A departure is known when a packet is queued, from the time at which the port will be free, so a queue is a number.
// Where priorities, trimming, pause, a shared buffer or link events need it, ports are served packet by packet, most of them
// without an event of their own (Ports::late_).

#include "sim/base/random.hpp"
#include "sim/network/packet/clock.hpp"
#include "sim/network/packet/flow.hpp"
#include "sim/network/packet/lanes.hpp"
#include "sim/network/packet/parts.hpp"
#include "sim/network/packet/ring.hpp"
#include "sim/network/packet/setup.hpp"
#include "sim/network/packet/turns.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace orrery::network::packet {

/// An output port with its link: what every hop touches, in one cache line.
struct alignas(64) Port {
    std::int64_t busy_until = 0;   ///< ps, when what it has accepted will have left
    std::int64_t max_backlog = 0;  ///< ps of service time that an arriving packet found before it
    double waited = 0;             ///< ps, full packets of data in the queue before they were sent, summed
    std::uint64_t packets = 0;     ///< of data that have left
    Ring link;                     ///< by arrival: packets on the link, with those that wait when departures are known;
                                   ///< without their sizes
    std::uint32_t rates = 0;       ///< number of its latency and rate: its kind, or what they have become
    std::uint32_t where = 0;       ///< leaf of nic_out, leaf_up, leaf_down; spine of spine_up and _down; NIC of nic_in
    std::uint16_t lane = 0;        ///< the spine's number within its pod
    std::uint16_t core = 0;        ///< the core switch's number within its spine
    PortKind kind = PortKind::nic_out;
    bool down = false;
    bool avoided = false;  ///< routing knows that it is down
    bool paused = false;   ///< data may not leave
};
static_assert(sizeof(Port) == 64);

/// What a link does to a packet, and what its queue does: what every hop touches in one cache line.
struct alignas(64) Rate {
    LinkKind link;
    QueueLimits limits;
    std::int64_t roomy = 0;  ///< ps, a backlog behind which every packet has room; less than 0: none, the link is down
    std::int64_t header_time = 0;  ///< ps, to send a header alone
    bool crosses = false;          ///< packets may leave for another part
};

/// What a port counts beyond each hop.
struct PortCounts {
    std::uint64_t control = 0;  ///< acknowledgements and their like that have left, each a header long
    std::uint64_t missing = 0;  ///< bytes by which data packets were shorter than full ones
    std::uint64_t shorter = 0;  ///< how many were
    double area = 0;  ///< bytes * ps, what packets shorter than full ones held of the queue until they had left
    std::uint64_t marks = 0;
    std::uint64_t drops = 0;
    std::uint64_t trims = 0;
    std::int64_t paused_time = 0;   ///< ps
    std::int64_t paused_since = 0;  ///< ps, of the present pause
};

/// Queues of a port whose departures are decided packet by packet (priorities, pause, trimming, shared buffer, faults).
/// The times of their entries are those of coming.
struct alignas(64) ServedPort {
    Ring control;
    Ring data;
    std::int64_t control_bytes = 0;
    std::int64_t data_bytes = 0;
    std::int64_t ingress_bytes = 0;  ///< waiting in the switch at the end of this link, having come over it
    std::uint32_t control_run = 0;   ///< control packets since the last of data
    bool pause_sent = false;         ///< by the switch at the end of this link
    bool armed = false;              ///< its event is pending: see Ports::arm
    bool to_settle = false;          ///< what waits may leave for another part: see Ports::close
    bool discards = false;           ///< data, as it has been paused for too long
};
static_assert(sizeof(ServedPort) == 64);

/// All ports, numbered by kind; the links of a kind as single links of the fabric are.
class Ports {
  public:
    Ports(const Setup& setup, Border& border, Clock& clock, Slab& slab, Flows& flows, std::uint64_t seed);

    [[nodiscard]] Port& operator[](std::uint32_t id) { return ports_[id]; }
    [[nodiscard]] const Port& operator[](std::uint32_t id) const { return ports_[id]; }
    [[nodiscard]] const ServedPort& served(std::uint32_t id) const { return served_[id]; }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ports_.size()); }
    [[nodiscard]] const PortCounts& counts(std::uint32_t id) const { return counts_[id]; }
    /// Latency and rate of a port's link as they are now.
    [[nodiscard]] const LinkKind& link(std::uint32_t id) const { return rates_[ports_[id].rates].link; }
    [[nodiscard]] const RingBuffers& rings() const { return rings_; }
    [[nodiscard]] LeafPorts towards_spines(std::uint32_t leaf) {
        const std::uint32_t first = setup_.base[2] + leaf * setup_.spines;
        for (std::uint32_t lane = 0; late_ && lane < setup_.spines; ++lane) {
            settle(first + lane);
        }
        return {&ports_[first], setup_.served ? &served_[first] : nullptr, setup_.full, clock_.now};
    }

    /// Takes a packet to send over a port, or loses it.
    void send(std::uint32_t port, std::uint32_t packet) {
        if (setup_.laned) {
            enqueue_in_lane(port, packet);
        } else if (setup_.served) {
            enqueue_now(port, packet);
        } else {
            send_now(port, packet);
        }
    }
    // In line, in hop.hpp. `now`, `before`: those of the clock; `p`: of the packet.
    /// The same for ports that are not served.
    [[gnu::always_inline]] inline void forward(std::uint32_t port, std::uint32_t packet, Packet& p, std::int64_t now);
    /// The same for ports that are served, and decide late or not.
    template <bool kLate>
    [[gnu::always_inline]] inline void enqueue(std::uint32_t port, std::uint32_t packet, Packet& p, std::int64_t now,
                                               std::int64_t before);
    /// Takes the packet that arrives now from a port's link. Precondition: the port's event is due.
    [[gnu::always_inline]] inline std::uint32_t take_arrival(std::uint32_t port);
    /// The same where ports decide late; false when it arrives later.
    [[nodiscard]] [[gnu::always_inline]] inline bool take_late_arrival(std::uint32_t port, std::int64_t now,
                                                                       std::uint32_t& packet);

    /// The same for ports with several lanes or credits.
    void enqueue_in_lane(std::uint32_t port, std::uint32_t packet);
    [[nodiscard]] bool decide_late() const { return late_; }
    /// Serves a port that is free if something waits there that leaves before new data. Precondition: not paused.
    void serve_before_data(std::uint32_t port);
    /// The event that arm() left: a served port is free.
    [[gnu::always_inline]] inline void serve_in_turn(std::uint32_t port, std::int64_t now);  // hop.hpp: of one queue
    void serve_due(std::uint32_t port) {
        served_[port].armed = false;
        if (setup_.laned) {
            serve_lanes(port);
        } else {
            serve(port);
        }
    }
    /// Lets a served port send what left it before Clock::before.
    void settle(std::uint32_t port) {
        if (late_ && ports_[port].busy_until < clock_.before) {
            catch_up_now(port);
        }
    }
    // Fetch from memory what a port's next event needs, in this order and with time between them.
    void fetch_port(std::uint32_t port) const {
        __builtin_prefetch(&ports_[port]);
        if (!served_.empty()) {
            __builtin_prefetch(&served_[port]);
        }
    }
    /// The first packet on its link; kNone: it has none.
    [[nodiscard]] std::uint32_t first_on_link(std::uint32_t port) const {
        return ports_[port].link.empty() ? kNone : rings_.front(ports_[port].link).packet;
    }
    /// The first packet that waits.
    void fetch_waiting(std::uint32_t port) const {
        if (!served_[port].data.empty()) {
            __builtin_prefetch(&slab_[rings_.front(served_[port].data).packet]);
        }
    }
    /// Whether data may leave a lane, of which a port has setup.lanes; true when that has changed.
    bool set_paused(std::uint32_t lane, bool paused);
    /// Whether a lane drops all data, those that wait as well.
    void set_discarding(std::uint32_t lane, bool discarding);
    // lanes.cpp: ports with several, or with credits
    /// Whether a lane of a port lets data of so many bytes leave.
    [[nodiscard]] bool lane_may_send(std::uint32_t port, std::uint32_t lane, std::uint32_t size) const;
    /// Room comes back to a lane; its port may send again.
    void room_returns(std::uint32_t lane);
    /// A packet has left the network: the room that it had at its NIC goes back.
    void give_room(const Packet& p);
    [[nodiscard]] const Lane& lane(std::uint32_t number) const { return lanes_[number]; }
    /// A packet has come over a port's link to a NIC that has no room for it.
    void lose_at_nic(std::uint32_t port, std::uint32_t packet) { lose(port, packet); }
    /// Packets that were dropped so.
    [[nodiscard]] std::uint64_t discarded() const { return discarded_; }

    /// Whether bit errors occur at all, and have spoiled a packet on this link.
    [[nodiscard]] bool noisy() const { return noisy_; }
    /// Whether more is done with a packet at the end of a link than to send it on: bit errors, or a FlowLog.
    [[nodiscard]] bool inspects() const { return inspects_; }
    [[nodiscard]] bool spoiled(std::uint32_t port, const Packet& p) {
        // (1 - rate)^bits, to first order where it matters, as rates are below 1e-3 of a packet.
        const bool hit = draw(errors_, port, p) < std::min(1.0, error_rates_[port] * 8 * p.size);
        corrupted_ += hit ? 1 : 0;
        return hit;
    }
    void set_error_rate(std::uint32_t port, double bits);
    /// From now on errors can occur.
    void expect_errors();
    /// All that leaves for another part before `end`, ps, is with it. Precondition: what comes before `end` is known.
    void close(std::int64_t end);
    /// Packets have left another part for this one. Empties the box.
    void receive(Border::Box& box);
    void set_rate(std::uint32_t port, double factor);
    /// What is on the link dies when the first of it would have arrived; what waits dies at once.
    void cut(std::uint32_t port);

    /// What a port has sent so far, to be compared with later.
    struct Sent {
        PortCounts counts;
        std::uint64_t packets = 0;
        double waited = 0;
    };
    [[nodiscard]] Sent sent(std::uint32_t port) const {
        return {counts_[port], ports_[port].packets, ports_[port].waited};
    }
    /// All that a port does is so much later. `each` sees every packet that waits or is on its link.
    template <class Each>
    void shift(std::uint32_t port, std::int64_t time, const Each& each);
    /// A port has sent so many packets without their having been simulated. What went with the packets since `from` goes with
    /// them in proportion; `share`: of the time since then.
    void skip(std::uint32_t port, double data, double control, const Sent& from, double share);

    /// Bytes waiting at a port.
    [[nodiscard]] double waiting(std::uint32_t port);
    /// Bytes that a port sends in this time.
    [[nodiscard]] double bytes_of(std::uint32_t port, std::int64_t ps) const {
        return bytes_in(link(port).ps_per_byte, ps);
    }
    /// Bytes of all packets that have left a port.
    [[nodiscard]] std::uint64_t bytes_sent(std::uint32_t port) const {
        const PortCounts& counts = counts_[port];
        return ports_[port].packets * setup_.full - counts.missing + counts.control * setup_.header;
    }
    /// The integral over time of the bytes in the queue, bytes * ps.
    [[nodiscard]] double queue_area(std::uint32_t port) const {
        const PortCounts& counts = counts_[port];
        const auto full = static_cast<double>(ports_[port].packets - counts.shorter);
        return counts.area + setup_.full * (ports_[port].waited + full * static_cast<double>(link(port).full_time) / 2);
    }
    [[nodiscard]] std::string name(std::uint32_t port) const;
    [[nodiscard]] double paused_seconds(std::uint32_t port) const;
    [[nodiscard]] std::uint64_t corrupted() const { return corrupted_; }
    [[nodiscard]] std::size_t memory() const {
        return ports_.capacity() * (sizeof(Port) + sizeof(PortCounts)) + served_.capacity() * sizeof(ServedPort) +
               lanes_.capacity() * sizeof(Lane) + rings_.memory();
    }

  private:
    void send_now(std::uint32_t port, std::uint32_t packet);
    void enqueue_now(std::uint32_t port, std::uint32_t packet);
    [[gnu::noinline]] void enqueue_behind(std::uint32_t port, std::uint32_t packet);
    [[gnu::noinline]] void lose(std::uint32_t port, std::uint32_t packet);
    void serve(std::uint32_t port);
    // A packet is the first on its link: its arrival becomes the port's event, unless that is pending.
    void expect_arrival(std::uint32_t port, std::int64_t arrival) {
        if (!late_ || !std::exchange(served_[port].armed, true)) {
            clock_.wheel.insert(port, arrival);
        }
    }
    [[gnu::always_inline]] inline void launch(std::uint32_t port, Port& out, const Rate& rate, std::uint32_t packet);
    [[gnu::always_inline]] inline std::int64_t count(std::uint32_t port, Port& out, const Rate& rate, bool data,
                                                     std::uint32_t size, std::int64_t waited);
    [[gnu::noinline]] std::int64_t count_control(std::uint32_t port, const Rate& rate, std::int64_t waited);
    [[gnu::noinline]] std::int64_t count_short(std::uint32_t port, std::uint32_t size, std::int64_t waited);
    [[nodiscard]] std::int64_t time_of(const LinkKind& link, std::uint32_t size) const {
        return size == setup_.full ? link.full_time : send_time(link.ps_per_byte, size);
    }
    [[gnu::always_inline]] inline void transmit(std::uint32_t port, Port& out, const Queued& waited, bool data,
                                                std::int64_t at);
    [[gnu::noinline]] void tell_load(std::uint32_t port, const Port& out, std::uint32_t packet, std::int64_t at);
    template <bool kLate>
    [[gnu::always_inline]] inline void send_waiting(std::uint32_t port, Port& out, ServedPort& queue, std::int64_t at);
    [[gnu::always_inline]] inline void catch_up(std::uint32_t port, Port& out, ServedPort& queue, std::int64_t before);
    template <bool kLate>
    [[nodiscard]] [[gnu::always_inline]] static inline bool has_waiting(const Port& out, const ServedPort& queue);
    void catch_up_now(std::uint32_t port);
    [[gnu::noinline]] std::uint32_t take_first_arrival(std::uint32_t port);
    static bool waits(const Port& out, const ServedPort& queue) {
        return !queue.control.empty() || (!queue.data.empty() && !out.paused);
    }
    [[nodiscard]] bool has_room(const Port& out, const Packet& p, std::int64_t backlog) const;
    template <bool kLate>
    [[nodiscard]] [[gnu::always_inline]] inline bool fits(std::uint32_t port, const Port& out, const ServedPort& queue,
                                                          const Packet& p) const;
    [[nodiscard]] bool fits_exactly(std::uint32_t port, const Packet& p) const;
    template <bool kLate>
    [[nodiscard]] [[gnu::always_inline]] inline bool admit(std::uint32_t port, Port& out, ServedPort& queue, Packet& p,
                                                           std::int64_t now);
    [[nodiscard]] [[gnu::noinline]] bool trim(std::uint32_t port, Packet& p);
    void drop_waiting(std::uint32_t port);
    void arm_lanes(std::uint32_t port);
    void serve_lanes(std::uint32_t port);
    [[nodiscard]] std::uint32_t ready_lanes(std::uint32_t port) const;
    [[nodiscard]] std::uint32_t pick_lane(std::uint32_t port, std::uint32_t ready);
    void change_lane(std::uint32_t port, Packet& p) const;
    [[nodiscard]] bool admit_in_lane(std::uint32_t port, Packet& p);
    void hold_in_lane(std::uint32_t port, const Packet& p);
    void leave_in_lane(std::uint32_t port, const Packet& p);
    void take_room(std::uint32_t port, const Packet& p);
    void drop_waiting_in_lane(std::uint32_t port, std::uint32_t lane);
    [[nodiscard]] Lane& lane_of(std::uint32_t port, const Packet& p) {
        return lanes_[std::size_t{port} * setup_.lanes + p.lane];
    }
    [[nodiscard]] const ClassSpec& class_of(std::uint32_t lane) const {
        return setup_.classes[lane / setup_.lanes_per_class];
    }
    [[gnu::always_inline]] inline void hold(std::uint32_t port, const Packet& p);
    [[gnu::noinline]] void pause(std::uint32_t port, Timer timer);
    void arm(std::uint32_t port);
    [[gnu::always_inline]] inline void arm_in_turn(std::uint32_t port, const Port& out, ServedPort& queue,
                                                   std::int64_t now);
    [[gnu::always_inline]] inline void leave_switch(std::uint32_t port, std::uint32_t packet);
    [[nodiscard]] bool mark(std::uint32_t port, const Packet& p, std::int64_t backlog, std::int64_t low,
                            std::int64_t high) const;
    void set_mark(std::uint32_t port, Packet& p) {
        p.flags |= kMarked;
        ++counts_[port].marks;
        if (flows_.log) {
            ++flows_.log->of(p.flow).marks;
        }
    }
    // Uniform in [0, 1), by what happens to whom and when alone: no other draw changes it, nor where else it is drawn.
    [[nodiscard]] double draw(std::uint64_t key, std::uint32_t port, const Packet& p) const {
        const std::uint64_t place = (static_cast<std::uint64_t>(port) << 32) | p.sequence;
        const std::uint64_t of = mix64(mix64(key + static_cast<std::uint64_t>(clock_.now)) ^ place) ^ p.flow;
        return static_cast<double>(mix64(of) >> 11) * 0x1p-53;
    }
    [[gnu::noinline]] bool cross(std::uint32_t port, const Port& out, std::uint32_t packet, std::int64_t arrival);
    [[nodiscard]] std::uint32_t switch_of(std::uint32_t port) const;
    [[nodiscard]] std::int64_t at_nominal_rate(const Port& port, std::int64_t backlog) const;
    [[noreturn]] static void overflow();

    const Setup& setup_;
    Border& border_;
    Clock& clock_;
    Slab& slab_;
    Flows& flows_;
    std::uint32_t full_;                    ///< as Setup::full
    bool telemetry_;                        ///< as TransportNeeds::telemetry
    bool divided_;                          ///< there are other parts
    std::vector<std::uint32_t> to_settle_;  ///< such ports where packets wait
    HugeVector<Port> ports_;
    HugeVector<PortCounts> counts_;
    HugeVector<ServedPort> served_;
    std::vector<Rate> rates_;  ///< of the kinds, then of ports whose rate has changed
    RingBuffers rings_;
    /// Served ports decide when the packets they send arrive, or others come: what leaves shows at the end of a link only.
    /// Not where the switch's memory counts, which departures free.
    bool late_ = false;
    bool holds_ = false;     ///< packets that wait count against their switch or link
    bool shares_ = false;    ///< against their switch, whose queues share its memory
    bool pauses_ = false;    ///< against their link, which is paused
    std::int64_t size_ = 0;  ///< bytes that a queue may hold, where neither is so
    /// Bytes that have come over a link and wait: how many there may be, and those at which it is paused and resumed.
    std::int64_t link_room_ = 0, pause_above_ = 0, resume_at_ = 0;
    std::vector<std::int64_t> switch_used_;  ///< bytes waiting in each switch, of shared buffers
    bool noisy_ = false;
    bool inspects_ = false;
    std::vector<double> error_rates_;  ///< by port, when bit errors occur
    std::uint64_t marks_;              ///< keys of draws
    std::uint64_t errors_;
    std::uint64_t corrupted_ = 0;
    std::uint64_t discarded_ = 0;
    bool credits_ = false;
    std::vector<Lane> lanes_;  ///< of the first port, of the second...; none: each port has one, its own
    Turns turns_;
    std::vector<std::uint8_t> last_lane_;  ///< of each class of a port, with a dateline
    static constexpr std::uint32_t kControlRun = 10;
};

template <class Each>
void Ports::shift(std::uint32_t port_id, std::int64_t time, const Each& each) {
    Port& port = ports_[port_id];
    const auto move = [&](const Ring& ring) {
        for (std::uint32_t i = 0; i < ring.count(); ++i) {
            Queued& queued = rings_.at(ring, i);
            queued.time += time;
            each(queued.packet);
        }
    };
    port.busy_until += time;
    move(port.link);
    if (port.paused) {
        counts_[port_id].paused_since += time;
    }
    if (setup_.served) {
        move(served_[port_id].control);
        move(served_[port_id].data);
    }
}

}  // namespace orrery::network::packet
