#pragma once
// Output ports with their queues and links: who may send when, what is dropped, trimmed, marked or paused.
//
// A departure is known when a packet is queued, from the time at which the port will be free, so a queue is a number.
// Ports serve packet by packet (one more event for each that waits) only where priorities, pause, a shared buffer or link
// events need it.

#include "sim/base/random.hpp"
#include "sim/network/packet/clock.hpp"
#include "sim/network/packet/flow.hpp"
#include "sim/network/packet/setup.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::packet {

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

/// All ports, numbered by kind; the links of a kind as single links of the fabric are.
class Ports {
  public:
    Ports(const Setup& setup, Clock& clock, Slab& slab, Flows& flows, std::uint64_t seed);

    [[nodiscard]] Port& operator[](std::uint32_t id) { return ports_[id]; }
    [[nodiscard]] const Port& operator[](std::uint32_t id) const { return ports_[id]; }
    [[nodiscard]] const ServedPort& served(std::uint32_t id) const { return served_[id]; }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ports_.size()); }
    [[nodiscard]] LeafPorts towards_spines(std::uint32_t leaf) const {
        const std::uint32_t first = setup_.base[2] + leaf * setup_.spines;
        return {&ports_[first], setup_.served ? &served_[first] : nullptr, setup_.full, clock_.now};
    }

    /// Takes a packet to send over a port, or loses it.
    void send(std::uint32_t port, std::uint32_t packet) {
        if (setup_.served) {
            enqueue(port, packet);
        } else {
            send_now(port, packet);
        }
    }
    /// The same in line, for ports that are not served.
    [[gnu::always_inline]] inline void forward(std::uint32_t port, std::uint32_t packet);
    /// The same for ports that are served.
    void enqueue(std::uint32_t port, std::uint32_t packet);
    /// Takes the packet that arrives now from a port's link. Precondition: one does.
    [[gnu::always_inline]] inline std::uint32_t take_arrival(std::uint32_t port);
    /// Serves a port that is free if something waits there that leaves before new data. Precondition: not paused.
    void serve_before_data(std::uint32_t port);
    /// A served port is free.
    void serve(std::uint32_t port);
    /// Whether data may leave; true when that has changed.
    bool set_paused(std::uint32_t port, bool paused);

    /// Whether bit errors occur at all, and have spoiled a packet on this link.
    [[nodiscard]] bool noisy() const { return noisy_; }
    [[nodiscard]] bool spoiled(std::uint32_t port, const Packet& p) {
        // (1 - rate)^bits, to first order where it matters, as rates are below 1e-3 of a packet.
        const bool hit = errors_.uniform() < std::min(1.0, error_rates_[port] * 8 * p.size);
        corrupted_ += hit ? 1 : 0;
        return hit;
    }
    void set_error_rate(std::uint32_t port, double bits);
    /// From now on errors can occur.
    void expect_errors();
    void set_rate(std::uint32_t port, double factor);
    /// What is on the link dies when the first of it would have arrived; what waits dies at once.
    void cut(std::uint32_t port);

    /// Bytes waiting at a port.
    [[nodiscard]] double waiting(std::uint32_t port) const;
    /// Bytes that a port sends in this time.
    [[nodiscard]] static double bytes_of(const Port& port, std::int64_t ps) { return bytes_in(port.ps_per_byte, ps); }
    [[nodiscard]] std::string name(std::uint32_t port) const;
    [[nodiscard]] double paused_seconds(std::uint32_t port) const;
    [[nodiscard]] std::uint64_t corrupted() const { return corrupted_; }
    [[nodiscard]] std::size_t memory() const {
        return ports_.capacity() * sizeof(Port) + served_.capacity() * sizeof(ServedPort);
    }

  private:
    void send_now(std::uint32_t port, std::uint32_t packet);
    [[gnu::always_inline]] inline void launch(std::uint32_t port, std::uint32_t packet);
    void transmit(std::uint32_t port, std::uint32_t packet);
    [[nodiscard]] [[gnu::always_inline]] inline bool fits(std::uint32_t port, std::uint32_t owner,
                                                          const Packet& p) const;
    void arm(std::uint32_t port);
    void leave_switch(std::uint32_t port, const Packet& p);
    [[nodiscard]] bool mark(std::int64_t backlog, std::int64_t low, std::int64_t high);
    [[nodiscard]] inline std::uint32_t switch_of(std::uint32_t port) const;
    [[nodiscard]] std::int64_t at_nominal_rate(const Port& port, std::int64_t backlog) const;
    [[noreturn]] static void overflow();

    const Setup& setup_;
    Clock& clock_;
    Slab& slab_;
    Flows& flows_;
    std::vector<Port> ports_;
    std::vector<ServedPort> served_;
    std::vector<std::int64_t> switch_used_;  ///< bytes waiting in each switch, of shared buffers
    bool noisy_ = false;
    std::vector<double> error_rates_;  ///< by port, when bit errors occur
    RandomStream marks_;
    RandomStream errors_;
    std::uint64_t corrupted_ = 0;
};

// Puts a packet whose departure is known onto the link.
void Ports::launch(std::uint32_t port, std::uint32_t packet) {
    constexpr std::int64_t kEndOfTime = std::int64_t{1} << 62;  // ps
    Port& out = ports_[port];
    Packet& p = slab_[packet];
    p.arrival = out.busy_until + out.latency;
    if (p.arrival > kEndOfTime) {
        overflow();
    }
    if (out.link.head == kNone) {
        clock_.wheel.insert(port, p.arrival);
    }
    out.link.push(slab_, packet);
}

void Ports::forward(std::uint32_t port, std::uint32_t packet) {
    Port& out = ports_[port];
    Packet& p = slab_[packet];
    const std::int64_t backlog = std::max<std::int64_t>(0, out.busy_until - clock_.now);
    const std::int64_t time = p.size == setup_.full ? out.full_time : send_time(out.ps_per_byte, p.size);
    const QueueLimits& limits = setup_.limits[static_cast<std::size_t>(out.kind)];
    if ((backlog + time > limits.drop && (p.flags & kReduces) == 0) || out.down) {
        ++out.drops;
        flows_.drop(packet);
        return;
    }
    if (p.kind == PacketKind::data) {
        if (backlog >= limits.mark_low && mark(backlog, limits.mark_low, limits.mark_high)) {
            p.flags |= kMarked;
            ++out.marks;
        }
    }
    ++out.packets[p.kind == PacketKind::data ? 0 : 1];
    out.bytes += p.size;
    out.max_backlog = std::max(out.max_backlog, backlog);
    const auto sending = static_cast<double>(time);
    out.backlog_area += sending * (static_cast<double>(backlog) + sending / 2);
    out.busy_until = clock_.now + backlog + time;
    launch(port, packet);
}

std::uint32_t Ports::take_arrival(std::uint32_t port) {
    Port& in = ports_[port];
    const std::uint32_t packet = in.link.pop(slab_);
    if (in.link.head != kNone) {
        clock_.wheel.insert(port, slab_[in.link.head].arrival);
    }
    return packet;
}

}  // namespace orrery::packet
