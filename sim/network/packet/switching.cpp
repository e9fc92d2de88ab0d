// Links, output queues and routing: what happens to a packet between two NICs.

#include "sim/network/packet/network.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::packet {

namespace {

constexpr std::uint64_t kProgressInterval = 1U << 20;
constexpr int kIdleIntervals = 8;           // looks in a row that found no new packet delivered,
constexpr std::int64_t kIdleTimeouts = 64;  // and so many timeouts of simulated time: nothing is just on a long way
constexpr std::uint32_t kControlRun = 10;
constexpr std::int64_t kEndOfTime = std::int64_t{1} << 62;  // ps

// Scales a 32-bit entropy to one of `n` ports.
inline std::uint32_t scale(std::uint32_t entropy, std::uint32_t n) {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(entropy) * n) >> 32);
}

}  // namespace

std::uint32_t Network::choose_spine(std::uint32_t leaf, std::uint32_t to_leaf, const Packet& p) {
    std::uint32_t lane = 0;
    if (path_needs_.leaves_choose) {
        const std::uint32_t first = base_[2] + leaf * spines_;
        lane = paths_->choose_lane(leaf, {&ports_[first], served_ ? &served_ports_[first] : nullptr, full_, now_});
    } else {
        lane = scale(p.path, spines_);
    }
    if (any_avoided_) {
        lane = route_around(leaf, to_leaf, lane);
    }
    return lane;
}

std::uint32_t Network::next_port(const Port& in, const Packet& p) {
    const std::uint32_t to = p.destination;
    const std::uint32_t to_leaf = leaf_of_nic_[to];
    switch (in.kind) {
        case PortKind::nic_out: {
            if (in.where == to_leaf) {
                return base_[1] + to;
            }
            return base_[2] + in.where * spines_ + choose_spine(in.where, to_leaf, p);
        }
        case PortKind::leaf_up:
            if (!tree_ || pod_of_leaf_[in.where] == pod_of_leaf_[to_leaf]) {
                return base_[3] + to_leaf * spines_ + in.lane;
            } else {
                // What the choice of the spine left of the entropy chooses the core switch.
                const auto rest = static_cast<std::uint32_t>(static_cast<std::uint64_t>(p.path) * spines_);
                const std::uint32_t spine = pod_of_leaf_[in.where] * spines_ + in.lane;
                const std::uint32_t core = scale(rest, cores_);
                return base_[4] + spine * cores_ +
                       (any_avoided_ ? live_core(pod_of_leaf_[in.where], pod_of_leaf_[to_leaf], in.lane, core) : core);
            }
        case PortKind::spine_up:
            return base_[5] + (pod_of_leaf_[to_leaf] * spines_ + in.lane) * cores_ + in.core;
        case PortKind::spine_down:
            return base_[3] + to_leaf * spines_ + in.lane;
        case PortKind::leaf_down:
        case PortKind::nic_in:
            break;
    }
    return base_[1] + to;
}

bool Network::mark(std::int64_t backlog, std::int64_t low, std::int64_t high) {
    if (backlog < low) {
        return false;
    }
    if (backlog >= high || low >= high) {
        return true;
    }
    const double share = static_cast<double>(backlog - low) / static_cast<double>(high - low);
    return marks_.uniform() < share * spec_.queues.mark_probability;
}

// Puts a packet whose departure is known onto the link.
void Network::launch(std::uint32_t port_id, std::uint32_t id) {
    Port& out = ports_[port_id];
    Packet& p = slab_[id];
    p.arrival = out.busy_until + out.latency;
    if (p.arrival > kEndOfTime) {
        throw InfeasibleError("simulated time overflow: a queue would take more than 53 days to drain");
    }
    if (out.link.head == kNone) {
        wheel_.insert(port_id, p.arrival);
    }
    out.link.push(slab_, id);
}

void Network::forward_now(std::uint32_t port_id, std::uint32_t id) {
    Port& out = ports_[port_id];
    Packet& p = slab_[id];
    const std::int64_t backlog = std::max<std::int64_t>(0, out.busy_until - now_);
    const std::int64_t time = p.size == full_ ? out.full_time : send_time(out, p.size);
    const Limits& limits = limits_[static_cast<std::size_t>(out.kind)];
    if ((backlog + time > limits.drop && (p.flags & kReduces) == 0) || out.down) {
        ++out.drops;
        drop(id);
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
    out.busy_until = now_ + backlog + time;
    launch(port_id, id);
}

// Whether bit errors have spoiled a packet on this link: (1 - rate)^bits, to first order where it matters, as rates are
// below 1e-3 of a packet.
bool Network::spoiled(std::uint32_t port_id, const Packet& p) {
    const bool hit = errors_.uniform() < std::min(1.0, error_rates_[port_id] * 8 * p.size);
    corrupted_ += hit ? 1 : 0;
    return hit;
}

void Network::arrive(std::uint32_t port_id) {
    Port& in = ports_[port_id];
    const std::uint32_t id = in.link.pop(slab_);
    if (in.link.head != kNone) {
        wheel_.insert(port_id, slab_[in.link.head].arrival);
    }
    Packet& p = slab_[id];
    if ((p.flags & (kDestroyed | kReduces)) != 0) {
        if ((p.flags & kDestroyed) != 0) {
            drop(id);
        } else {
            arrive_reducing(port_id, id);
        }
        return;
    }
    if (noisy_ && spoiled(port_id, p)) {
        drop(id);
        return;
    }
    if (in.kind == PortKind::nic_in) {
        deliver(id);
        return;
    }
    const std::uint32_t out = next_port(in, p);
    if (served_) {
        p.ingress = port_id;
        enqueue_served(spec_.detour ? detour(in, out, p) : out, id);
    } else {
        forward_now(out, id);
    }
}

void Network::forward(std::uint32_t port_id, std::uint32_t id) {
    forward_now(port_id, id);
}

// Reports progress; where millions of events and many round trips bring no packet home, none will come: retransmissions
// crowd out everything.
void Network::watch() {
    if (progress_) {
        progress_(payload_delivered_);
    }
    if (delivered_ != watched_) {
        watched_ = delivered_;
        watched_at_ = now_;
        idle_intervals_ = 0;
    } else if (++idle_intervals_ >= kIdleIntervals && (now_ - watched_at_) / kIdleTimeouts > timeout_) {
        check_deadlock();
        fail_all("8 million events have not brought a single new packet to its receiver (congestion collapse)");
    }
}

void Network::run(std::int64_t limit_ps) {
    completed_.clear();
    if (!unplanned_.empty()) {
        plan_batch();
    }
    std::uint32_t entity = 0;
    const std::uint32_t ports = base_[kPortKinds];
    std::int64_t limit = limit_ps;
    std::int64_t at = now_;
    while (wheel_.pop(limit, at, entity)) {
        now_ = at;
        ++events_;
        if (entity < ports) {
            arrive(entity);
        } else {
            dispatch(entity);
        }
        if (!completed_.empty()) {
            limit = now_;
        }
        if (events_ % kProgressInterval == 0) {
            watch();
        }
    }
    std::sort(completed_.begin(), completed_.end());
}

void Network::dispatch(std::uint32_t entity) {
    const std::uint32_t ports = base_[kPortKinds];
    const std::uint32_t index = entity & ((1U << kTimerShift) - 1);
    switch (static_cast<Timer>(entity >> kTimerShift)) {
        case Timer::wheel: {
            const auto nics = static_cast<std::uint32_t>(nics_.size());
            if (index < ports + nics) {
                commit(index - ports);
            } else {
                serve(index - ports - nics);
            }
            break;
        }
        case Timer::start:
            start_flow(index);
            break;
        case Timer::pace:
            // Where the rate has changed since, another event counts.
            if (Flow& flow = flows_[index]; flow.waiting_pace && flow.next_time == now_) {
                flow.waiting_pace = false;
                if (flow.live) {
                    list(index);
                }
            }
            break;
        case Timer::retransmit:
            on_timeout(index);
            break;
        case Timer::congestion:
            on_congestion_timer(index);
            break;
        case Timer::pause:
            set_paused(index, true);
            break;
        case Timer::resume:
            set_paused(index, false);
            break;
        case Timer::link_event:
            apply_link_event(index);
            break;
        case Timer::reroute:
            ports_[index].avoided = ports_[index].down;
            any_avoided_ = std::any_of(ports_.begin(), ports_.end(), [](const Port& p) { return p.avoided; });
            break;
        case Timer::grant:
            grant(index);
            break;
        case Timer::sample:
            sample();
            break;
    }
}

void Network::discard(std::uint32_t id) {
    const std::uint32_t flow = slab_[id].flow;
    slab_.give(id);
    --flows_[flow].records;
    if (flows_[flow].records == 0 && !flows_[flow].live) {
        release_flow(flow);
    }
}

void Network::drop(std::uint32_t id) {
    const PacketKind kind = slab_[id].kind;
    destroyed_ += kind == PacketKind::data || kind == PacketKind::trimmed ? 1 : 0;
    discard(id);
}

void Network::transmit(std::uint32_t port_id, std::uint32_t id) {
    Port& out = ports_[port_id];
    Packet& p = slab_[id];
    ++out.packets[p.kind == PacketKind::data ? 0 : 1];
    out.bytes += p.size;
    const std::int64_t time = p.size == full_ ? out.full_time : send_time(out, p.size);
    const auto sending = static_cast<double>(time);
    out.backlog_area += sending * (static_cast<double>(now_ - p.arrival) + sending / 2);
    out.busy_until = now_ + time;
    launch(port_id, id);
}

std::uint32_t Network::switch_of(std::uint32_t port_id) const {
    const Port& port = ports_[port_id];
    const std::uint32_t leaves = fabric_.leaves();
    switch (port.kind) {
        case PortKind::nic_out:
            return kNone;
        case PortKind::nic_in:
            return leaf_of_nic_[port.where];
        case PortKind::leaf_up:
            return port.where;
        case PortKind::leaf_down:
            return leaves + pod_of_leaf_[port.where] * spines_ + port.lane;
        case PortKind::spine_up:
            return leaves + port.where;
        case PortKind::spine_down:
            return leaves + fabric_.spines() + port.lane * cores_ + port.core;
    }
    return kNone;
}

// A packet that waited has left the switch's memory: gives back what it held, and lets its link send again.
void Network::leave_switch(std::uint32_t port_id, const Packet& p) {
    if (p.ingress == kNone) {
        return;
    }
    switch_used_[switch_of(port_id)] -= p.size;
    ServedPort& in = served_ports_[p.ingress];
    in.ingress_bytes -= p.size;
    if (in.pause_sent && static_cast<double>(in.ingress_bytes) <= spec_.queues.resume_at) {
        in.pause_sent = false;
        const Port& link = ports_[p.ingress];
        schedule(Timer::resume, p.ingress, now_ + link.latency + send_time(link, header_));
    }
}

void Network::enqueue_served(std::uint32_t port_id, std::uint32_t id) {
    Port& out = ports_[port_id];
    ServedPort& queue = served_ports_[port_id];
    Packet& p = slab_[id];
    const QueueSpec& q = spec_.queues;
    if (out.down) {
        ++out.drops;
        drop(id);
        return;
    }
    const bool idle = out.busy_until <= now_;
    const bool is_data = p.kind == PacketKind::data;
    if (is_data && idle && queue.data.head == kNone && queue.control.head == kNone && !out.paused) {
        transmit(port_id, id);
        return;
    }
    if (!is_data && idle && queue.control.head == kNone) {
        transmit(port_id, id);
        return;
    }
    // Sums wait in the slots of their switch, not in its packet memory.
    const std::uint32_t owner = p.ingress == kNone ? kNone : switch_of(port_id);
    if (is_data && owner != kNone) {
        double limit = q.size > 0 ? q.size : kNoLimit;
        if (q.shared > 0) {
            const double free = q.shared - static_cast<double>(switch_used_[owner]);
            limit = p.size > free ? -1 : std::min(limit, q.alpha * free);
        }
        if (q.pfc) {
            limit = static_cast<double>(served_ports_[p.ingress].ingress_bytes) + p.size > q.pause_at + q.headroom
                        ? -1
                        : kNoLimit;
        }
        const double waiting =
            static_cast<double>(queue.data_bytes) + queue_bytes(out, std::max<std::int64_t>(0, out.busy_until - now_));
        if (waiting + p.size > limit) {
            // What is left of a trimmed packet still tells the receiver; it waits with the control packets.
            if (!q.trim || static_cast<double>(queue.control_bytes) + header_ > (q.size > 0 ? q.size : kNoLimit)) {
                ++out.drops;
                drop(id);
                return;
            }
            ++out.trims;
            p.kind = PacketKind::trimmed;
            p.size = header_;
        } else {
            const std::int64_t backlog = send_time(out, static_cast<std::uint32_t>(queue.data_bytes)) +
                                         std::max<std::int64_t>(0, out.busy_until - now_);
            out.max_backlog = std::max(out.max_backlog, backlog);
            const Limits& limits = limits_[static_cast<std::size_t>(out.kind)];
            const std::int64_t nominal = at_nominal_rate(out, backlog);
            if (nominal >= limits.mark_low && mark(nominal, limits.mark_low, limits.mark_high)) {
                p.flags |= kMarked;
                ++out.marks;
            }
        }
    }
    if (p.kind == PacketKind::data) {
        queue.data.push(slab_, id);
        queue.data_bytes += p.size;
        if (owner != kNone) {
            switch_used_[owner] += p.size;
            ServedPort& in = served_ports_[p.ingress];
            in.ingress_bytes += p.size;
            if (q.pfc && !in.pause_sent && static_cast<double>(in.ingress_bytes) > q.pause_at) {
                in.pause_sent = true;
                const Port& link = ports_[p.ingress];
                schedule(Timer::pause, p.ingress, now_ + link.latency + send_time(link, header_));
            }
        }
    } else {
        queue.control.push(slab_, id);
        queue.control_bytes += p.size;
    }
    arm_service(port_id);
}

void Network::arm_service(std::uint32_t port_id) {
    const std::uint32_t entity = base_[kPortKinds] + static_cast<std::uint32_t>(nics_.size()) + port_id;
    const ServedPort& queue = served_ports_[port_id];
    const bool waiting = queue.control.head != kNone || (queue.data.head != kNone && !ports_[port_id].paused);
    if (waiting && !wheel_.pending(entity)) {
        wheel_.insert(entity, std::max(now_, ports_[port_id].busy_until));
    }
}

void Network::serve(std::uint32_t port_id) {
    Port& out = ports_[port_id];
    ServedPort& queue = served_ports_[port_id];
    if (out.busy_until > now_) {
        arm_service(port_id);
        return;
    }
    // Ten control packets to one of data where both wait, or headers of trimmed packets could crowd out all data: Handley et
    // al., "Re-architecting datacenter networks and stacks for low latency and high performance", SIGCOMM 2017.
    const bool data_waits = queue.data.head != kNone && !out.paused;
    if (queue.control.head != kNone && (!data_waits || queue.control_run < kControlRun)) {
        ++queue.control_run;
        const std::uint32_t id = queue.control.pop(slab_);
        queue.control_bytes -= slab_[id].size;
        transmit(port_id, id);
    } else if (data_waits) {
        queue.control_run = 0;
        const std::uint32_t id = queue.data.pop(slab_);
        const Packet& p = slab_[id];
        queue.data_bytes -= p.size;
        leave_switch(port_id, p);
        transmit(port_id, id);
    }
    arm_service(port_id);
}

void Network::set_paused(std::uint32_t port_id, bool paused) {
    Port& port = ports_[port_id];
    if (port.paused == paused) {
        return;
    }
    port.paused = paused;
    if (paused) {
        served_ports_[port_id].paused_since = now_;
        return;
    }
    port.paused_time += now_ - served_ports_[port_id].paused_since;
    arm_service(port_id);
    if (port.kind == PortKind::nic_out) {
        kick(port_id - base_[0]);
    }
}

}  // namespace orrery::packet
