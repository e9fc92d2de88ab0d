#include "sim/network/packet/port.hpp"

#include "sim/base/time.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::packet {

namespace {
constexpr std::uint32_t kControlRun = 10;
}

Ports::Ports(const Setup& setup, Clock& clock, Slab& slab, Flows& flows, std::uint64_t seed)
    : setup_(setup),
      clock_(clock),
      slab_(slab),
      flows_(flows),
      marks_(seed, "packet/marks"),
      errors_(seed, "packet/errors") {
    for (std::size_t kind = 0; kind < kPortKinds; ++kind) {
        const LinkKind& link = setup.links[kind];
        Port port;
        port.kind = static_cast<PortKind>(kind);
        port.latency = link.latency;
        port.full_time = link.full_time;
        port.ps_per_byte = link.ps_per_byte;
        port.down = link.ps_per_byte == 0;
        ports_.insert(ports_.end(), link.count, port);
    }
    // Where each port is, for routing by arithmetic.
    for (std::uint32_t nic = 0; nic < setup.nics; ++nic) {
        ports_[setup.base[0] + nic].where = setup.leaf_of_nic[nic];
        ports_[setup.base[1] + nic].where = nic;
    }
    for (std::uint32_t i = 0; i < setup.links[2].count; ++i) {
        for (const std::size_t kind : {std::size_t{2}, std::size_t{3}}) {
            Port& port = ports_[setup.base[kind] + i];
            port.where = i / setup.spines;
            port.lane = static_cast<std::uint16_t>(i % setup.spines);
        }
    }
    for (std::uint32_t i = 0; i < setup.links[4].count; ++i) {
        for (const std::size_t kind : {std::size_t{4}, std::size_t{5}}) {
            Port& port = ports_[setup.base[kind] + i];
            port.where = i / setup.cores;
            port.lane = static_cast<std::uint16_t>(port.where % setup.spines);
            port.core = static_cast<std::uint16_t>(i % setup.cores);
        }
    }
    for (std::uint32_t i = 0; i < setup.switch_links.size(); ++i) {
        Port& port = ports_[setup.base[kTreeKinds] + i];
        port.where = setup.switch_links[i].to;
        port.latency = SimTime::from_seconds(setup.switch_links[i].latency).ps();
    }
    served_.resize(setup.served ? ports_.size() : 0);
    if (setup.spec.bit_error_rate > 0) {
        noisy_ = true;
        error_rates_.resize(ports_.size(), setup.spec.bit_error_rate);
    }
    switch_used_.assign(setup.fabric.topology().switches(), 0);
}

std::uint32_t Ports::switch_of(std::uint32_t port_id) const {
    const Port& port = ports_[port_id];
    const std::uint32_t leaves = setup_.fabric.leaves();
    switch (port.kind) {
        case PortKind::nic_out:
            return kNone;
        case PortKind::nic_in:
            return setup_.leaf_of_nic[port.where];
        case PortKind::leaf_up:
            return port.where;
        case PortKind::leaf_down:
            return leaves + setup_.pod_of_leaf[port.where] * setup_.spines + port.lane;
        case PortKind::spine_up:
            return leaves + port.where;
        case PortKind::spine_down:
            return leaves + setup_.fabric.spines() + port.lane * setup_.cores + port.core;
        default:
            return setup_.switch_links[port_id - setup_.base[kTreeKinds]].from;
    }
}

void Ports::overflow() {
    throw InfeasibleError("simulated time overflow: a queue would take more than 53 days to drain");
}

bool Ports::mark(std::int64_t backlog, std::int64_t low, std::int64_t high) {
    if (backlog < low) {
        return false;
    }
    if (backlog >= high || low >= high) {
        return true;
    }
    const double share = static_cast<double>(backlog - low) / static_cast<double>(high - low);
    return marks_.uniform() < share * setup_.spec.queues.mark_probability;
}

void Ports::send_now(std::uint32_t port, std::uint32_t packet) {
    forward(port, packet);
}

void Ports::expect_errors() {
    if (!noisy_) {
        noisy_ = true;
        error_rates_.assign(ports_.size(), 0);
    }
}

void Ports::set_error_rate(std::uint32_t port, double bits) {
    error_rates_[port] = bits;
}

void Ports::set_rate(std::uint32_t port_id, double factor) {
    Port& port = ports_[port_id];
    const auto nominal = static_cast<double>(setup_.links[static_cast<std::size_t>(port.kind)].ps_per_byte);
    port.ps_per_byte = static_cast<std::uint64_t>(std::llround(nominal / factor));
    port.full_time = send_time(port.ps_per_byte, setup_.full);
}

void Ports::transmit(std::uint32_t port, std::uint32_t packet) {
    Port& out = ports_[port];
    Packet& p = slab_[packet];
    ++out.packets[p.kind == PacketKind::data ? 0 : 1];
    out.bytes += p.size;
    const std::int64_t time = p.size == setup_.full ? out.full_time : send_time(out.ps_per_byte, p.size);
    const auto sending = static_cast<double>(time);
    out.backlog_area += sending * (static_cast<double>(clock_.now - p.arrival) + sending / 2);
    out.busy_until = clock_.now + time;
    launch(port, packet);
}

// A packet that waited has left the switch's memory: gives back what it held, and lets its link send again.
void Ports::leave_switch(std::uint32_t port, const Packet& p) {
    if (p.ingress == kNone) {
        return;
    }
    switch_used_[switch_of(port)] -= p.size;
    ServedPort& in = served_[p.ingress];
    in.ingress_bytes -= p.size;
    if (in.pause_sent && static_cast<double>(in.ingress_bytes) <= setup_.spec.queues.resume_at) {
        in.pause_sent = false;
        const Port& link = ports_[p.ingress];
        clock_.schedule(Timer::resume, p.ingress,
                        clock_.now + link.latency + send_time(link.ps_per_byte, setup_.header));
    }
}

// Whether a data packet may wait at a port of this switch.
bool Ports::fits(std::uint32_t port, std::uint32_t owner, const Packet& p) const {
    const QueueSpec& q = setup_.spec.queues;
    double limit = q.size > 0 ? q.size : kNoLimit;
    if (q.shared > 0) {
        const double free = q.shared - static_cast<double>(switch_used_[owner]);
        limit = p.size > free ? -1 : std::min(limit, q.alpha * free);
    }
    if (q.pfc) {
        limit =
            static_cast<double>(served_[p.ingress].ingress_bytes) + p.size > q.pause_at + q.headroom ? -1 : kNoLimit;
    }
    const Port& out = ports_[port];
    const double waiting = static_cast<double>(served_[port].data_bytes) +
                           bytes_of(out, std::max<std::int64_t>(0, out.busy_until - clock_.now));
    return waiting + p.size <= limit;
}

void Ports::enqueue(std::uint32_t port, std::uint32_t packet) {
    Port& out = ports_[port];
    ServedPort& queue = served_[port];
    Packet& p = slab_[packet];
    const QueueSpec& q = setup_.spec.queues;
    if (out.down) {
        ++out.drops;
        flows_.drop(packet);
        return;
    }
    const bool idle = out.busy_until <= clock_.now && queue.control.head == kNone;
    const bool is_data = p.kind == PacketKind::data;
    if (idle && (!is_data || (queue.data.head == kNone && !out.paused))) {
        transmit(port, packet);
        return;
    }
    // Sums wait in the slots of their switch, not in its packet memory.
    const std::uint32_t owner = p.ingress == kNone ? kNone : switch_of(port);
    if (is_data && owner != kNone) {
        if (fits(port, owner, p)) {
            const std::int64_t backlog = send_time(out.ps_per_byte, static_cast<std::uint32_t>(queue.data_bytes)) +
                                         std::max<std::int64_t>(0, out.busy_until - clock_.now);
            out.max_backlog = std::max(out.max_backlog, backlog);
            const QueueLimits& limits = setup_.limits[static_cast<std::size_t>(out.kind)];
            const std::int64_t nominal = at_nominal_rate(out, backlog);
            if (nominal >= limits.mark_low && mark(nominal, limits.mark_low, limits.mark_high)) {
                p.flags |= kMarked;
                ++out.marks;
            }
        } else if (!q.trim ||
                   static_cast<double>(queue.control_bytes) + setup_.header > (q.size > 0 ? q.size : kNoLimit)) {
            ++out.drops;
            flows_.drop(packet);
            return;
        } else {
            // What is left of a trimmed packet still tells the receiver; it waits with the control packets.
            ++out.trims;
            p.kind = PacketKind::trimmed;
            p.size = setup_.header;
        }
    }
    if (p.kind != PacketKind::data) {
        queue.control.push(slab_, packet);
        queue.control_bytes += p.size;
    } else {
        queue.data.push(slab_, packet);
        queue.data_bytes += p.size;
        if (owner != kNone) {
            switch_used_[owner] += p.size;
            ServedPort& in = served_[p.ingress];
            in.ingress_bytes += p.size;
            if (q.pfc && !in.pause_sent && static_cast<double>(in.ingress_bytes) > q.pause_at) {
                in.pause_sent = true;
                const Port& link = ports_[p.ingress];
                clock_.schedule(Timer::pause, p.ingress,
                                clock_.now + link.latency + send_time(link.ps_per_byte, setup_.header));
            }
        }
    }
    arm(port);
}

void Ports::arm(std::uint32_t port) {
    const std::uint32_t entity = setup_.ports() + setup_.nics + port;
    const ServedPort& queue = served_[port];
    const bool waiting = queue.control.head != kNone || (queue.data.head != kNone && !ports_[port].paused);
    if (waiting && !clock_.wheel.pending(entity)) {
        clock_.wheel.insert(entity, std::max(clock_.now, ports_[port].busy_until));
    }
}

void Ports::serve(std::uint32_t port) {
    Port& out = ports_[port];
    ServedPort& queue = served_[port];
    if (out.busy_until > clock_.now) {
        arm(port);
        return;
    }
    // Ten control packets to one of data where both wait, or headers of trimmed packets could crowd out all data: Handley et
    // al., "Re-architecting datacenter networks and stacks for low latency and high performance", SIGCOMM 2017.
    const bool data_waits = queue.data.head != kNone && !out.paused;
    if (queue.control.head != kNone && (!data_waits || queue.control_run < kControlRun)) {
        ++queue.control_run;
        const std::uint32_t id = queue.control.pop(slab_);
        queue.control_bytes -= slab_[id].size;
        transmit(port, id);
    } else if (data_waits) {
        queue.control_run = 0;
        const std::uint32_t id = queue.data.pop(slab_);
        const Packet& p = slab_[id];
        queue.data_bytes -= p.size;
        leave_switch(port, p);
        transmit(port, id);
    }
    arm(port);
}

void Ports::serve_before_data(std::uint32_t port) {
    const ServedPort& queue = served_[port];
    if (queue.data.head != kNone || (queue.control.head != kNone && queue.control_run < kControlRun)) {
        serve(port);
    }
}

bool Ports::set_paused(std::uint32_t port_id, bool paused) {
    Port& port = ports_[port_id];
    if (port.paused == paused) {
        return false;
    }
    port.paused = paused;
    if (paused) {
        served_[port_id].paused_since = clock_.now;
    } else {
        port.paused_time += clock_.now - served_[port_id].paused_since;
        arm(port_id);
    }
    return true;
}

void Ports::cut(std::uint32_t port_id) {
    Port& port = ports_[port_id];
    const std::int64_t first = port.link.head != kNone ? slab_[port.link.head].arrival : clock_.now + port.latency;
    for (std::uint32_t id = port.link.head; id != kNone; id = slab_[id].next) {
        slab_[id].flags |= kDestroyed;
        slab_[id].arrival = first;
        ++port.drops;
    }
    port.busy_until = std::max(clock_.now, first - port.latency);
    ServedPort& queue = served_[port_id];
    while (queue.data.head != kNone) {
        const std::uint32_t id = queue.data.pop(slab_);
        queue.data_bytes -= slab_[id].size;
        leave_switch(port_id, slab_[id]);
        ++port.drops;
        flows_.drop(id);
    }
    while (queue.control.head != kNone) {
        const std::uint32_t id = queue.control.pop(slab_);
        queue.control_bytes -= slab_[id].size;
        ++port.drops;
        flows_.drop(id);
    }
}

// Limits of queues are times at the kind's normal rate; a degraded link takes longer for the same bytes.
std::int64_t Ports::at_nominal_rate(const Port& port, std::int64_t backlog) const {
    const std::uint64_t nominal = setup_.links[static_cast<std::size_t>(port.kind)].ps_per_byte;
    if (port.ps_per_byte == nominal) {
        return backlog;
    }
    return std::llround(static_cast<double>(backlog) * static_cast<double>(nominal) /
                        static_cast<double>(port.ps_per_byte));
}

double Ports::waiting(std::uint32_t port) const {
    double bytes = bytes_of(ports_[port], std::max<std::int64_t>(0, ports_[port].busy_until - clock_.now));
    if (setup_.served) {
        bytes += static_cast<double>(served_[port].data_bytes + served_[port].control_bytes);
    }
    return bytes;
}

std::string Ports::name(std::uint32_t port) const {
    const Port& p = ports_[port];
    const std::string where = std::to_string(p.where);
    const std::string lane = std::to_string(p.lane);
    if (setup_.routed != nullptr) {
        const auto of_nic = [&](std::uint32_t nic) { return setup_.routed->switch_name(setup_.leaf_of_nic[nic]); };
        const std::uint32_t own = port - setup_.base[p.kind == PortKind::nic_out  ? 0
                                                     : p.kind == PortKind::nic_in ? 1
                                                                                  : 6];
        if (p.kind == PortKind::nic_out) {
            return "nic " + std::to_string(own) + " to " + of_nic(own);
        }
        if (p.kind == PortKind::nic_in) {
            return of_nic(own) + " to nic " + std::to_string(own);
        }
        return setup_.routed->resource_name(own);
    }
    switch (p.kind) {
        case PortKind::nic_out:
            return "nic " + std::to_string(port - setup_.base[0]) + " to leaf " + where;
        case PortKind::nic_in:
            return "leaf " + std::to_string(setup_.leaf_of_nic[p.where]) + " to nic " + where;
        case PortKind::leaf_up:
            return "leaf " + where + " to spine " + lane;
        case PortKind::leaf_down:
            return "spine " + lane + " to leaf " + where;
        case PortKind::spine_up:
            return "spine " + where + " to core " + std::to_string(p.core);
        case PortKind::spine_down:
            return "core " + std::to_string(p.core) + " to spine " + where;
        default:
            break;
    }
    return "";
}

double Ports::paused_seconds(std::uint32_t port) const {
    const Port& p = ports_[port];
    return static_cast<double>(p.paused_time + (p.paused ? clock_.now - served_[port].paused_since : 0)) * 1e-12;
}

}  // namespace orrery::packet
