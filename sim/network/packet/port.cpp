#include "sim/network/packet/hop.hpp"

#include "sim/base/time.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace orrery::network::packet {

namespace {

// Of a port's rings, with the places that they have outgrown: more than most need. And of all ports, as room counts against the limit
// of memory before it is used.
constexpr std::size_t kEntriesOfPort = 64;
constexpr std::size_t kMostExpectedEntries = 1U << 23;

// What whole numbers of bytes are compared with instead of a limit that may be none, or not a whole number.
std::int64_t whole_bytes(double limit) {
    return static_cast<std::int64_t>(std::floor(std::clamp(limit, -1e18, 1e18)));
}

}  // namespace

std::int64_t LeafPorts::free_at(std::uint32_t lane) const {
    const std::int64_t waiting = queues != nullptr ? queues[lane].data_bytes : 0;
    return up[lane].avoided ? std::numeric_limits<std::int64_t>::max()
                            : std::max(up[lane].busy_until, now) + waiting * packet;
}

Ports::Ports(const Setup& setup, Border& border, Clock& clock, Slab& slab, Flows& flows, std::uint64_t seed)
    : setup_(setup),
      border_(border),
      clock_(clock),
      slab_(slab),
      flows_(flows),
      full_(setup.full),
      telemetry_(setup.transport.telemetry),
      divided_(!border.whole()),
      marks_(RandomStream(seed, "packet/marks").next()),
      errors_(RandomStream(seed, "packet/errors").next()),
      credits_(setup.spec.queues.credits > 0),
      turns_(setup.classes, setup.full, setup.laned ? setup.ports() : 0) {
    ports_.reserve(setup.ports());
    rings_.expect(std::min(setup.ports() * kEntriesOfPort / border.parts().count, kMostExpectedEntries));
    for (std::size_t kind = 0; kind < kPortKinds; ++kind) {
        const LinkKind& link = setup.links[kind];
        Port port;
        port.kind = static_cast<PortKind>(kind);
        port.rates = static_cast<std::uint32_t>(kind);
        port.down = link.ps_per_byte == 0;
        ports_.insert(ports_.end(), link.count, port);
        rates_.push_back({link, setup.limits[kind], port.down ? -1 : setup.limits[kind].drop - link.full_time,
                          send_time(link.ps_per_byte, setup.header),
                          kind >= border.parts().first_kind && kind <= border.parts().last_kind});
    }
    counts_.resize(ports_.size());
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
        // A row of its own where its latency is not that of all links of its rate.
        Rate rate = rates_[port.rates];
        rate.link.latency = SimTime::from_seconds(setup.switch_links[i].latency).ps();
        if (rate.link.latency != rates_[port.rates].link.latency) {
            port.rates = static_cast<std::uint32_t>(rates_.size());
            rates_.push_back(rate);
        }
    }
    served_.resize(setup.served ? ports_.size() : 0);
    const QueueSpec& queues = setup.spec.queues;
    shares_ = queues.shared > 0;
    pauses_ = queues.pfc;
    holds_ = pauses_ || shares_;
    size_ = whole_bytes(queues.size > 0 ? queues.size : kNoLimit);
    link_room_ = whole_bytes(queues.pause_at + queues.headroom);
    pause_above_ = whole_bytes(queues.pause_at);
    resume_at_ = whole_bytes(queues.resume_at);
    late_ = setup.served && !holds_ && !setup.laned;
    if (setup.laned) {
        Lane lane;
        lane.room = static_cast<std::int64_t>(setup.spec.queues.credits) / kCreditBlock * kCreditBlock;
        lanes_.resize(std::size_t{setup.ports()} * setup.lanes, lane);
        last_lane_.resize(setup.lanes_per_class > 1 ? setup.ports() * setup.classes.size() : 0, 0);
    }
    if (setup.spec.bit_error_rate > 0) {
        noisy_ = true;
        error_rates_.resize(ports_.size(), setup.spec.bit_error_rate);
    }
    inspects_ = noisy_ || setup.counts_flows;
    switch_used_.assign(setup.fabric.topology().switches(), 0);
}

void Ports::overflow() {
    throw InfeasibleError("simulated time overflow: a queue would take more than 53 days to drain");
}

bool Ports::mark(std::uint32_t port, const Packet& p, std::int64_t backlog, std::int64_t low, std::int64_t high) const {
    if (backlog < low) {
        return false;
    }
    if (backlog >= high || low >= high) {
        return true;
    }
    const double share = static_cast<double>(backlog - low) / static_cast<double>(high - low);
    return draw(marks_, port, p) < share * setup_.spec.queues.mark_probability;
}

std::int64_t Ports::count_control(std::uint32_t port, const Rate& rate, std::int64_t waited) {
    PortCounts& counts = counts_[port];
    ++counts.control;
    counts.area += setup_.header * (static_cast<double>(waited) + static_cast<double>(rate.header_time) / 2);
    return rate.header_time;
}

std::int64_t Ports::count_short(std::uint32_t port, std::uint32_t size, std::int64_t waited) {
    PortCounts& counts = counts_[port];
    ++ports_[port].packets;
    ++counts.shorter;
    counts.missing += setup_.full - size;
    const std::int64_t time = send_time(link(port).ps_per_byte, size);
    counts.area += size * (static_cast<double>(waited) + static_cast<double>(time) / 2);
    return time;
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

// Whether a packet may wait behind so much. Packets of reductions wait in the slots of their switch.
bool Ports::has_room(const Port& out, const Packet& p, std::int64_t backlog) const {
    const Rate& rate = rates_[out.rates];
    return !out.down && (backlog + time_of(rate.link, p.size) <= rate.limits.drop || (p.flags & kReduces) != 0);
}

void Ports::send_now(std::uint32_t port, std::uint32_t packet) {
    forward(port, packet, slab_[packet], clock_.now);
}

void Ports::enqueue_now(std::uint32_t port, std::uint32_t packet) {
    Port& out = ports_[port];
    const ServedPort& queue = served_[port];
    // Most often it is a NIC's, which sends when its port is free and nothing waits there.
    if (out.busy_until <= clock_.now && !out.down && !out.paused && queue.control.empty() && queue.data.empty())
        [[likely]] {
        const Packet& p = slab_[packet];
        transmit(port, out, {clock_.now, packet, p.size}, p.kind == PacketKind::data, clock_.now);
        return;
    }
    enqueue_behind(port, packet);
}

void Ports::enqueue_behind(std::uint32_t port, std::uint32_t packet) {
    if (late_) {
        enqueue<true>(port, packet, slab_[packet], clock_.now, clock_.before);
    } else {
        enqueue<false>(port, packet, slab_[packet], clock_.now, clock_.before);
    }
}

void Ports::lose(std::uint32_t port, std::uint32_t packet) {
    ++counts_[port].drops;
    flows_.drop(packet);
}

void Ports::expect_errors() {
    if (!noisy_) {
        noisy_ = inspects_ = true;
        error_rates_.assign(ports_.size(), 0);
    }
}

void Ports::set_error_rate(std::uint32_t port, double bits) {
    error_rates_[port] = bits;
}

void Ports::set_rate(std::uint32_t port_id, double factor) {
    settle(port_id);
    Port& port = ports_[port_id];
    LinkKind link = setup_.links[static_cast<std::size_t>(port.kind)];
    link.latency = rates_[port.rates].link.latency;
    link.ps_per_byte = static_cast<std::uint64_t>(std::llround(static_cast<double>(link.ps_per_byte) / factor));
    link.full_time = send_time(link.ps_per_byte, setup_.full);
    if (port.rates < kPortKinds) {
        const Rate of_kind = rates_[port.rates];
        port.rates = static_cast<std::uint32_t>(rates_.size());
        rates_.push_back(of_kind);
    }
    rates_[port.rates].link = link;
    rates_[port.rates].header_time = send_time(link.ps_per_byte, setup_.header);
}

// A switch writes the load of a port into a packet that leaves it. Those of reductions have no congestion control, and sums go on
// from where others ended.
void Ports::tell_load(std::uint32_t port, const Port& out, std::uint32_t packet, std::int64_t at) {
    if (out.kind != PortKind::nic_out && (slab_[packet].flags & kReduces) == 0) {
        const auto waiting = static_cast<double>(served_[port].data_bytes + served_[port].control_bytes);
        slab_.telemetry.stamp(packet, port, at, bytes_sent(port), waiting, bytes_of(port, 1'000'000'000'000));
    }
}

// The same by the exact length of the queue, in memory that may be shared.
bool Ports::fits_exactly(std::uint32_t port, const Packet& p) const {
    const QueueSpec& q = setup_.spec.queues;
    double limit = q.size > 0 ? q.size : kNoLimit;
    if (shares_) {
        const double free = q.shared - static_cast<double>(switch_used_[switch_of(port)]);
        limit = p.size > free ? -1 : std::min(limit, q.alpha * free);
    }
    const auto queued = static_cast<double>(served_[port].data_bytes);
    if (ports_[port].rates < kPortKinds && queued + setup_.full + 1 + p.size <= limit) {
        return true;
    }
    const double waiting = queued + bytes_of(port, std::max<std::int64_t>(0, ports_[port].busy_until - clock_.now));
    return waiting + p.size <= limit;
}

// Ports that decide late have not sent yet what another part must know of.
void Ports::close(std::int64_t end) {
    clock_.before = end;
    std::erase_if(to_settle_, [&](std::uint32_t port) {
        settle(port);
        served_[port].to_settle = waits(ports_[port], served_[port]);
        return !served_[port].to_settle;
    });
}

// Puts a packet that a link leads to another part into its box; false: its way goes on here.
bool Ports::cross(std::uint32_t port, const Port& out, std::uint32_t packet, std::int64_t arrival) {
    const std::uint32_t part = border_.part_behind(out.where, slab_[packet]);
    if (part == border_.own()) {
        return false;
    }
    if (late_) {
        fetch_waiting(port);  // may leave next, and nothing has asked for it yet
    }
    Border::Box& box = border_.box(part);
    box.put(slab_[packet], port, arrival);
    if (setup_.transport.telemetry) {
        box.told.push_back(slab_.telemetry.told(packet));
    }
    border_.note(arrival);
    slab_.give(packet);
    return true;
}

void Ports::receive(Border::Box& box) {
    constexpr std::size_t kPacketAhead = 16;
    constexpr std::size_t kPortAhead = 6;
    const std::size_t count = box.packets.size();
    for (std::size_t i = 0; i < count; ++i) {
        __builtin_prefetch(&box.packets[std::min(i + kPacketAhead, count - 1)]);
        __builtin_prefetch(&ports_[box.packets[std::min(i + kPortAhead, count - 1)].ingress], 1);
        const std::uint32_t id = slab_.take();
        const Packet& packet = slab_[id] = box.packets[i];
        if (!box.told.empty()) {
            slab_.telemetry.tell(id, box.told[i]);
        }
        Port& in = ports_[packet.ingress];
        if (in.link.empty()) {
            expect_arrival(packet.ingress, box.arrivals[i]);
        }
        rings_.push(in.link, {box.arrivals[i], id, 0});
    }
    box.clear();
}

// Cuts a packet that has no room down to its header, where that has some: what is left of it still tells the receiver, and
// waits with the control packets.
bool Ports::trim(std::uint32_t port, Packet& p) {
    const QueueSpec& q = setup_.spec.queues;
    const double room = q.size > 0 ? q.size : kNoLimit;
    if (!q.trim || static_cast<double>(served_[port].control_bytes) + setup_.header > room) {
        return false;
    }
    ++counts_[port].trims;
    if (flows_.log) {
        ++flows_.log->of(p.flow).trims;
    }
    p.kind = PacketKind::trimmed;
    p.flags |= ports_[port].kind == PortKind::nic_in ? kLastHop : 0;
    p.size = setup_.header;
    return true;
}

// A switch has the link of a port paused or resumed: its word takes the way back.
void Ports::pause(std::uint32_t port, Timer timer) {
    const LinkKind& link = this->link(port);
    clock_.schedule(timer, port, clock_.now + link.latency + send_time(link.ps_per_byte, setup_.header));
}

// The next event of a served port: its serving, or where that is decided late the next arrival from its link. What waits
// arrives a latency after it has left, at the earliest.
void Ports::arm(std::uint32_t port) {
    Port& out = ports_[port];
    ServedPort& queue = served_[port];
    const bool waiting = waits(out, queue);
    if (queue.armed || (!waiting && (!late_ || out.link.empty()))) {
        return;
    }
    queue.armed = true;
    if (!late_) {
        clock_.wheel.insert(setup_.ports() + setup_.nics + port, std::max(clock_.now, out.busy_until));
    } else if (!out.link.empty()) {
        clock_.wheel.insert(port, rings_.front(out.link).time);
    } else {
        clock_.wheel.insert(port, std::max(clock_.now, out.busy_until) + rates_[out.rates].link.latency + 1);
    }
}

// Of a link that had nothing on it when its port last decided.
std::uint32_t Ports::take_first_arrival(std::uint32_t port) {
    Port& in = ports_[port];
    ServedPort& queue = served_[port];
    queue.armed = false;
    settle(port);
    if (in.link.empty() || rings_.front(in.link).time > clock_.now || queue.armed) {
        arm(port);
        return kNone;
    }
    const std::uint32_t packet = rings_.pop(in.link).packet;
    arm(port);
    return packet;
}

void Ports::catch_up_now(std::uint32_t port) {
    catch_up(port, ports_[port], served_[port], clock_.before);
}

void Ports::serve(std::uint32_t port) {
    Port& out = ports_[port];
    ServedPort& queue = served_[port];
    if (out.busy_until <= clock_.now && waits(out, queue)) {
        late_ ? send_waiting<true>(port, out, queue, clock_.now) : send_waiting<false>(port, out, queue, clock_.now);
    }
    arm(port);
}

void Ports::serve_before_data(std::uint32_t port) {
    const ServedPort& queue = served_[port];
    if (!queue.data.empty() || (!queue.control.empty() && queue.control_run < kControlRun)) {
        setup_.laned ? serve_lanes(port) : serve(port);
    }
}

bool Ports::set_paused(std::uint32_t lane, bool paused) {
    const std::uint32_t port_id = lane / setup_.lanes;
    if (setup_.laned) {
        Lane& own = lanes_[lane];
        if (own.paused == paused) {
            return false;
        }
        own.paused = paused;
        if (paused) {
            own.paused_since = clock_.now;
        } else {
            counts_[port_id].paused_time += clock_.now - own.paused_since;
            arm_lanes(port_id);
        }
        return true;
    }
    Port& port = ports_[port_id];
    if (port.paused == paused) {
        return false;
    }
    port.paused = paused;
    if (paused) {
        counts_[port_id].paused_since = clock_.now;
    } else {
        counts_[port_id].paused_time += clock_.now - counts_[port_id].paused_since;
        arm(port_id);
    }
    return true;
}

// Data that wait at a port are lost.
void Ports::drop_waiting(std::uint32_t port_id) {
    for (std::uint32_t lane = 0; setup_.laned && lane < setup_.lanes; ++lane) {
        drop_waiting_in_lane(port_id, lane);
    }
    ServedPort& queue = served_[port_id];
    counts_[port_id].drops += queue.data.count();
    while (!queue.data.empty()) {
        const Queued lost = rings_.pop(queue.data);
        queue.data_bytes -= lost.size;
        if (holds_) {
            leave_switch(port_id, lost.packet);
        }
        flows_.drop(lost.packet);
    }
}

void Ports::set_discarding(std::uint32_t lane, bool discarding) {
    const std::uint32_t port_id = lane / setup_.lanes;
    if (setup_.laned) {
        lanes_[lane].discards = discarding;
        if (discarding) {
            discarded_ += lanes_[lane].data.count();
            drop_waiting_in_lane(port_id, lane % setup_.lanes);
        }
        return;
    }
    served_[port_id].discards = discarding;
    if (discarding) {
        discarded_ += served_[port_id].data.count();
        drop_waiting(port_id);
    }
}

void Ports::cut(std::uint32_t port_id) {
    settle(port_id);
    Port& port = ports_[port_id];
    PortCounts& counts = counts_[port_id];
    const std::int64_t latency = rates_[port.rates].link.latency;
    const std::int64_t first = port.link.empty() ? clock_.now + latency : rings_.front(port.link).time;
    for (std::uint32_t i = 0; i < port.link.count(); ++i) {
        Queued& on_link = rings_.at(port.link, i);
        slab_[on_link.packet].flags |= kDestroyed;
        on_link.time = first;
    }
    port.busy_until = std::max(clock_.now, first - latency);
    ServedPort& queue = served_[port_id];
    counts.drops += port.link.count() + queue.control.count();
    drop_waiting(port_id);
    while (!queue.control.empty()) {
        const Queued lost = rings_.pop(queue.control);
        queue.control_bytes -= lost.size;
        flows_.drop(lost.packet);
    }
}

// Limits of queues are times at the kind's normal rate; a degraded link takes longer for the same bytes.
std::int64_t Ports::at_nominal_rate(const Port& port, std::int64_t backlog) const {
    const std::uint64_t nominal = setup_.links[static_cast<std::size_t>(port.kind)].ps_per_byte;
    const std::uint64_t present = rates_[port.rates].link.ps_per_byte;
    return present == nominal ? backlog
                              : std::llround(static_cast<double>(backlog) * static_cast<double>(nominal) /
                                             static_cast<double>(present));
}

double Ports::waiting(std::uint32_t port) {
    settle(port);
    double bytes = bytes_of(port, std::max<std::int64_t>(0, ports_[port].busy_until - clock_.now));
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
    const PortCounts& p = counts_[port];
    std::int64_t time = p.paused_time + (ports_[port].paused ? clock_.now - p.paused_since : 0);
    for (std::uint32_t lane = 0; setup_.laned && lane < setup_.lanes; ++lane) {
        const Lane& own = lanes_[std::size_t{port} * setup_.lanes + lane];
        time += own.paused ? clock_.now - own.paused_since : 0;
    }
    return static_cast<double>(time) * 1e-12;
}

void Ports::skip(std::uint32_t port_id, double data, double control, const Sent& from, double share) {
    Port& port = ports_[port_id];
    PortCounts& counts = counts_[port_id];
    const auto simulated = static_cast<double>(port.packets - from.packets);
    if (simulated > 0) {
        const double more = data / simulated;
        const auto times = [&](std::uint64_t now, std::uint64_t before) {
            return static_cast<std::uint64_t>(std::llround(more * static_cast<double>(now - before)));
        };
        port.waited += more * (port.waited - from.waited);
        counts.area += more * (counts.area - from.counts.area);
        counts.marks += times(counts.marks, from.counts.marks);
    }
    port.packets += static_cast<std::uint64_t>(std::llround(data));
    counts.control += static_cast<std::uint64_t>(std::llround(control));
    counts.paused_time += std::llround(share * static_cast<double>(counts.paused_time - from.counts.paused_time));
}

}  // namespace orrery::network::packet
