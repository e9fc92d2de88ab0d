#include "sim/network/packet/lanes.hpp"

#include "sim/base/error.hpp"
#include "sim/network/packet/hop.hpp"

namespace orrery::network::packet {

bool Ports::lane_may_send(std::uint32_t port, std::uint32_t lane, std::uint32_t size) const {
    const Lane& own = lanes_[std::size_t{port} * setup_.lanes + lane];
    return !own.paused && (!credits_ || own.room >= Lane::blocks(size));
}

// Lanes of a port with data that may leave, one bit each.
std::uint32_t Ports::ready_lanes(std::uint32_t port) const {
    std::uint32_t out = 0;
    for (std::uint32_t lane = 0; served_[port].data_bytes > 0 && lane < setup_.lanes; ++lane) {
        const Ring& data = lanes_[std::size_t{port} * setup_.lanes + lane].data;
        const bool sends = !data.empty() && lane_may_send(port, lane, rings_.front(data).size);
        out |= sends ? 1U << lane : 0U;
    }
    return out;
}

// The lane in which a packet goes on from a switch.
void Ports::change_lane(std::uint32_t port, Packet& p) const {
    p.came = p.lane;
    if (!setup_.spec.queues.dateline || ports_[port].kind < PortKind::link) {
        return;
    }
    const LinkTurn& out = setup_.link_turns[port - setup_.base[kTreeKinds]];
    const bool goes_on = p.ingress >= setup_.base[kTreeKinds] &&
                         setup_.link_turns[p.ingress - setup_.base[kTreeKinds]].dimension == out.dimension;
    const std::uint32_t crossed = (goes_on && (p.lane & 1U) != 0) || out.dateline ? 1 : 0;
    p.lane = static_cast<std::uint8_t>((p.lane & ~1U) | crossed);
}

void Ports::enqueue_in_lane(std::uint32_t port, std::uint32_t packet) {
    Port& out = ports_[port];
    ServedPort& queue = served_[port];
    Packet& p = slab_[packet];
    const bool is_data = p.kind == PacketKind::data;
    const bool held = is_data && p.ingress != kNone;
    if (held) {
        change_lane(port, p);
    }
    if (out.down) {
        ++counts_[port].drops;
        flows_.drop(packet);
        return;
    }
    const bool idle = out.busy_until <= clock_.now && queue.control.empty() && ready_lanes(port) == 0;
    if (idle && (!is_data || (lane_of(port, p).data.empty() && lane_may_send(port, p.lane, p.size)))) {
        if (is_data) {
            take_room(port, p);
            give_room(p);
        }
        transmit(port, out, {clock_.now, packet, p.size}, is_data, clock_.now);
        return;
    }
    if (held && !admit_in_lane(port, p)) {
        ++counts_[port].drops;
        flows_.drop(packet);
        return;
    }
    if (p.kind != PacketKind::data) {
        rings_.push(queue.control, {clock_.now, packet, p.size});
        queue.control_bytes += p.size;
    } else {
        Lane& lane = lane_of(port, p);
        rings_.push(lane.data, {clock_.now, packet, p.size});
        lane.bytes += p.size;
        queue.data_bytes += p.size;
        if (held) {
            hold_in_lane(port, p);
        }
    }
    arm_lanes(port);
}

// Room at the far end of the link is taken by a packet that leaves.
void Ports::take_room(std::uint32_t port, const Packet& p) {
    if (credits_) {
        lane_of(port, p).room -= Lane::blocks(p.size);
    }
}

// A packet begins to leave the switch, or has reached its NIC: its room goes back to the port that it came from.
void Ports::give_room(const Packet& p) {
    if (!credits_ || p.ingress == kNone || p.kind != PacketKind::data) {
        return;
    }
    const std::uint32_t index = p.ingress * setup_.lanes + p.came;
    Lane& lane = lanes_[index];
    const LinkKind& link = this->link(p.ingress);
    const std::int64_t at = clock_.now + link.latency + send_time(link.ps_per_byte, setup_.header);
    rings_.push(lane.returning, {at, 0, static_cast<std::uint32_t>(Lane::blocks(p.size))});
    if (!std::exchange(lane.armed, true)) {
        clock_.schedule(Timer::credit, index, at);
    }
}

void Ports::room_returns(std::uint32_t index) {
    Lane& lane = lanes_[index];
    ORRERY_ASSERT(lane.armed);
    while (!lane.returning.empty() && rings_.front(lane.returning).time <= clock_.now) {
        lane.room += rings_.pop(lane.returning).size;
    }
    lane.armed = !lane.returning.empty();
    if (lane.armed) {
        clock_.schedule(Timer::credit, index, rings_.front(lane.returning).time);
    }
    arm_lanes(index / setup_.lanes);
}

// Takes a data packet into the memory of a switch, and marks it or cuts it down; false: it has no room.
bool Ports::admit_in_lane(std::uint32_t port, Packet& p) {
    const QueueSpec& q = setup_.spec.queues;
    const ClassSpec& own = class_of(p.lane);
    const Lane& lane = lane_of(port, p);
    if (lane.discards) {
        ++discarded_;
        return false;
    }
    double limit = own.size > 0 ? own.size : kNoLimit;
    if (q.shared > 0) {
        const double free = q.shared - static_cast<double>(switch_used_[switch_of(port)]);
        limit = p.size > free ? -1 : std::min(limit, own.alpha * free);
    }
    if (own.pfc) {
        const Lane& in = lanes_[std::size_t{p.ingress} * setup_.lanes + p.came];
        limit = static_cast<double>(in.ingress_bytes) + p.size > own.pause_at + own.headroom ? -1 : kNoLimit;
    }
    limit = credits_ ? kNoLimit : limit;
    if (static_cast<double>(lane.bytes) + p.size > limit) {
        return trim(port, p);
    }
    Port& out = ports_[port];
    const Rate& rate = rates_[out.rates];
    const std::int64_t leaving = std::max<std::int64_t>(0, out.busy_until - clock_.now);
    const auto all = static_cast<std::uint32_t>(served_[port].data_bytes);
    out.max_backlog = std::max(out.max_backlog, send_time(rate.link.ps_per_byte, all) + leaving);
    const bool victim = setup_.transport.credit_links && !lane_may_send(port, p.lane, p.size);
    if (own.mark_high > 0 && !victim) {
        const std::int64_t waiting = lane.bytes + std::llround(bytes_of(port, leaving));
        const std::int64_t low = std::max<std::int64_t>(1, std::llround(own.mark_low));
        if (waiting >= low && mark(port, p, waiting, low, std::llround(own.mark_high))) {
            p.flags |= kMarked;
            ++counts_[port].marks;
        }
    }
    return true;
}

void Ports::hold_in_lane(std::uint32_t port, const Packet& p) {
    switch_used_[switch_of(port)] += p.size;
    const std::uint32_t index = p.ingress * setup_.lanes + p.came;
    Lane& in = lanes_[index];
    in.ingress_bytes += p.size;
    const ClassSpec& own = class_of(p.came);
    if (own.pfc && !in.pause_sent && static_cast<double>(in.ingress_bytes) > own.pause_at) {
        in.pause_sent = true;
        const LinkKind& link = this->link(p.ingress);
        clock_.schedule(Timer::pause, index, clock_.now + link.latency + send_time(link.ps_per_byte, setup_.header));
    }
}

void Ports::leave_in_lane(std::uint32_t port, const Packet& p) {
    if (p.ingress == kNone) {
        return;
    }
    switch_used_[switch_of(port)] -= p.size;
    const std::uint32_t index = p.ingress * setup_.lanes + p.came;
    Lane& in = lanes_[index];
    in.ingress_bytes -= p.size;
    ORRERY_ASSERT(in.ingress_bytes >= 0);
    if (in.pause_sent && static_cast<double>(in.ingress_bytes) <= class_of(p.came).resume_at) {
        in.pause_sent = false;
        const LinkKind& link = this->link(p.ingress);
        clock_.schedule(Timer::resume, index, clock_.now + link.latency + send_time(link.ps_per_byte, setup_.header));
    }
    give_room(p);
}

void Ports::serve_lanes(std::uint32_t port) {
    Port& out = ports_[port];
    ServedPort& queue = served_[port];
    if (out.busy_until <= clock_.now) {
        const std::uint32_t ready = ready_lanes(port);
        if (!queue.control.empty() && (ready == 0 || queue.control_run < kControlRun)) {
            const Queued next = rings_.pop(queue.control);
            ++queue.control_run;
            queue.control_bytes -= next.size;
            transmit(port, out, next, false, clock_.now);
        } else if (ready != 0) {
            const std::uint32_t number = pick_lane(port, ready);
            Lane& lane = lanes_[std::size_t{port} * setup_.lanes + number];
            const Queued next = rings_.pop(lane.data);
            queue.control_run = 0;
            queue.data_bytes -= next.size;
            lane.bytes -= next.size;
            turns_.charge(port, number / setup_.lanes_per_class, next.size);
            take_room(port, slab_[next.packet]);
            leave_in_lane(port, slab_[next.packet]);
            transmit(port, out, next, true, clock_.now);
        }
    }
    arm_lanes(port);
}

// The event of a port with lanes that has something to send: its serving.
void Ports::arm_lanes(std::uint32_t port) {
    if (!served_[port].armed && (!served_[port].control.empty() || ready_lanes(port) != 0)) {
        served_[port].armed = true;
        clock_.wheel.insert(setup_.ports() + setup_.nics + port, std::max(clock_.now, ports_[port].busy_until));
    }
}

// A lane of those that are ready: of the class whose turn it is, and of its two lanes not the same one again.
std::uint32_t Ports::pick_lane(std::uint32_t port, std::uint32_t ready) {
    if (setup_.lanes_per_class == 1) {
        return turns_.pick(port, ready);
    }
    std::uint32_t classes = 0;
    for (std::uint32_t i = 0; i < setup_.classes.size(); ++i) {
        classes |= (ready >> (2 * i) & 3U) != 0 ? 1U << i : 0U;
    }
    const std::uint32_t own = turns_.pick(port, classes);
    const std::uint32_t both = ready >> (2 * own) & 3U;
    std::uint8_t& last = last_lane_[port * setup_.classes.size() + own];
    last = static_cast<std::uint8_t>(both == 3 ? last ^ 1U : both >> 1U);
    return 2 * own + last;
}

void Ports::drop_waiting_in_lane(std::uint32_t port, std::uint32_t number) {
    ServedPort& queue = served_[port];
    Lane& lane = lanes_[std::size_t{port} * setup_.lanes + number];
    counts_[port].drops += lane.data.count();
    while (!lane.data.empty()) {
        const Queued lost = rings_.pop(lane.data);
        queue.data_bytes -= lost.size;
        lane.bytes -= lost.size;
        leave_in_lane(port, slab_[lost.packet]);
        flows_.drop(lost.packet);
    }
}

}  // namespace orrery::network::packet
