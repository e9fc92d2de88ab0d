// Groups that are held, and what moves when they go on.

#include "sim/base/error.hpp"
#include "sim/network/packet/steady.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::network::packet {

std::uint32_t Steady::holder_of(std::uint32_t entity) const {
    const std::uint32_t index = entity & ((1U << kTimerShift) - 1);
    const auto of_flow = [&] { return index < tracks_.size() ? tracks_[index].group : kNone; };
    switch (static_cast<Timer>(entity >> kTimerShift)) {
        case Timer::wheel: {
            const std::uint32_t ports = setup_.ports();
            return holder_[index < ports                 ? index
                           : index < ports + setup_.nics ? setup_.base[0] + index - ports
                                                         : index - ports - setup_.nics];
        }
        case Timer::pace:
        case Timer::retransmit:
        case Timer::congestion:
            return of_flow();
        case Timer::pause:
        case Timer::resume:
            return holder_[index];
        case Timer::grant:
            return holder_[setup_.base[0] + index];
        default:
            return kNone;
    }
}

void Steady::hold(std::vector<Group> some) {
    std::erase_if(some, [&](Group& group) {
        const bool affords = affordable(group);
        pledged_ += affords ? group.pledged : 0;
        return !affords;
    });
    if (some.empty()) {
        return;
    }
    ORRERY_ASSERT(std::all_of(some.begin(), some.end(), [&](const Group& one) { return one.until > clock_.now; }));
    for (Group& group : some) {
        group.since = clock_.now;
        group.held = true;
        const std::uint32_t slot = held_.take(std::move(group));
        for (const std::uint32_t id : held_[slot].flows) {
            tracks_[id].group = slot;
        }
        each_port(held_[slot], [&](std::uint32_t port) {
            ports_.settle(port);
            holder_[port] = slot;
        });
        clock_.schedule(Timer::go_on, slot, held_[slot].until);
    }
    std::vector<Wheel::Pending> events;
    clock_.wheel.extract([&](std::uint32_t entity) { return holder_of(entity) != kNone; }, events);
    for (const Wheel::Pending& event : events) {
        held_[holder_of(event.entity)].events.push_back(event);
    }
}

void Steady::go_on(std::uint32_t slot) {
    if (held_[slot].held && held_[slot].until == clock_.now) {
        go_on_now(slot);
    }
}

void Steady::go_on_all() {
    for (std::uint32_t slot = 0; slot < held_.size(); ++slot) {
        if (held_[slot].held) {
            go_on_now(slot);
        }
    }
}

void Steady::go_on_now(std::uint32_t slot) {
    const Group group = std::move(held_[slot]);
    ORRERY_ASSERT(group.held && group.since <= clock_.now);
    held_[slot] = Group();
    const std::int64_t time = clock_.now - group.since;
    move_flows(group, static_cast<double>(time));
    count_skipped(group, time);
    shift_ports(group, time);
    for (const std::uint32_t id : group.flows) {
        Track& track = tracks_[id];
        const double bytes = static_cast<double>(moved_[id]) * setup_.full;
        for (Snapshot& one : track.past) {
            for (double* const at : {&one.at, &one.sent_at, &one.heard_at}) {
                *at += static_cast<double>(time);
            }
            one.sent += bytes;
            one.heard += bytes;
            one.came += bytes;
        }
        nics_.shift_flow(id, {time, moved_[id]});
        if (setup_.transport.telemetry) {
            slab_.telemetry.shift_flow(id, time, [&](std::uint32_t port) { return more_bytes_[port]; });
        }
        track.group = kNone;
        moved_[id] = 0;
    }
    for (const Wheel::Pending& event : group.events) {
        const std::uint32_t index = event.entity & ((1U << kTimerShift) - 1);
        if (const auto timer = static_cast<Timer>(event.entity >> kTimerShift); timer == Timer::wheel) {
            clock_.wheel.insert(index, event.time + time);
        } else {
            clock_.schedule(timer, index, event.time + time);
        }
    }
    each_port(group, [&](std::uint32_t port) {
        holder_[port] = kNone;
        more_bytes_[port] = 0;
    });
    held_.give(slot);
    arm(window_);
}

// How many packets each flow moves on by. Where flows were judged together, what is not a whole packet of one is the next one's of
// the same NIC: of a few packets each, all would lag by a half otherwise.
std::vector<Steady::Move> Steady::moves(const Group& group, double time) const {
    std::vector<Move> out;
    std::map<std::uint32_t, double> over;  // bytes, by NIC
    for (const std::uint32_t id : group.flows) {
        const Track& track = tracks_[id];
        const Flow& flow = flows_[id];
        double own = 0;
        double& carried = track.together ? over[flow.source] : own;
        const double alone = track.rate * time + track.residue;
        const double bytes = alone + carried;
        const auto most = static_cast<double>(flow.packets - flow.next_new - 1);
        Move move;
        move.packets = static_cast<std::uint32_t>(std::clamp(std::floor(bytes / setup_.full), 0.0, most));
        const double left = bytes - static_cast<double>(move.packets) * setup_.full;
        carried = track.together ? left : 0;
        move.residue = track.together ? 0 : left;
        move.rates = move.packets * (track.spread / 2 + track.doubt / 2 + std::abs(track.lag + track.trend * time / 2));
        // A flow alone goes on at another phase of its packets, and of windows and answers: up to a packet later.
        const double rounded = std::abs(alone / setup_.full - move.packets);
        move.rounding = track.together ? rounded : std::max(1.0, rounded);
        out.push_back(move);
    }
    return out;
}

void Steady::move_flows(const Group& group, double time) {
    const std::vector<Move> all = moves(group, time);
    for (std::size_t i = 0; i < all.size(); ++i) {
        Track& track = tracks_[group.flows[i]];
        moved_[group.flows[i]] = all[i].packets;
        track.residue = all[i].residue;
        track.lag += track.trend * time;
        skipped_ += all[i].packets;
        error_ += all[i].rates + all[i].rounding;
    }
    pledged_ -= group.pledged;
}

// Whether what the run tells of its error stays within the tolerance if this group is held: whenever it goes on, by what was
// delivered before; or, where all flows that there are belong to it and nothing comes from outside before its time, then.
bool Steady::affordable(Group& group) {
    const double left = tolerance_ * static_cast<double>(flows_.counts.delivered) - error_ - pledged_;
    const auto time = static_cast<double>(group.until - clock_.now);
    const std::vector<Move> all = moves(group, time);
    double error = 0;
    double packets = 0;
    group.pledged = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        // What a flow's rate is out by is largest at one end of the time, whatever its trend; its packets may be one more.
        const Track& track = tracks_[group.flows[i]];
        const double drift = std::max(std::abs(track.lag), std::abs(track.lag + track.trend * time / 2));
        const double beyond = track.spread / 2 + track.doubt / 2 + drift - tolerance_;
        group.pledged += 1 + std::max(0.0, beyond) * (all[i].packets + 1);
        error += all[i].rates + all[i].rounding;
        packets += all[i].packets;
    }
    if (group.pledged <= left) {
        return true;
    }
    group.pledged = std::max(0.0, error - tolerance_ * packets);
    return group.flows.size() == active_.size() && group.until <= clock_.limit && group.pledged <= left;
}

// Ports, with all packets on them, and NICs.
void Steady::shift_ports(const Group& group, std::int64_t time) {
    each_port(group, [&](std::uint32_t port) {
        ports_.shift(port, time, [&](std::uint32_t packet) { shift_packet(packet, time); });
        if (ports_[port].kind == PortKind::nic_out) {
            nics_.shift_nic(port - setup_.base[0], time);
            receivers_.shift_nic(port - setup_.base[0], time);
        }
    });
}

void Steady::shift_packet(std::uint32_t id, std::int64_t time) {
    Packet& p = slab_[id];
    const std::uint32_t packets = moved_[p.flow];
    p.sent += time;
    p.sequence += packets;
    p.cumulative += packets;
    if (setup_.transport.credits && p.kind != PacketKind::ack && p.kind != PacketKind::nack) {
        p.selected += std::uint64_t{packets} * setup_.full;
    }
    if (setup_.transport.telemetry && (p.kind == PacketKind::data || p.kind == PacketKind::ack)) {
        slab_.telemetry.shift_packet(id, time, [&](std::uint32_t port) { return more_bytes_[port]; });
    }
}

// Packets that the receivers of a group have sent for each of data since its observation began.
double Steady::answers_of(const Group& group) const {
    std::map<std::uint32_t, std::uint64_t> sent;  // by port
    double received = 0;
    for (const std::uint32_t id : group.flows) {
        const Flow& flow = flows_[id];
        received += flow.received - tracks_[id].received;
        // Of few packets each, many are not answered yet.
        received -= tracks_[id].together ? flow.untold : 0;
        const std::uint32_t port = tracks_[id].ways.back.front();
        ORRERY_ASSERT(ports_.counts(port).control >= since_[port].counts.control);
        sent[port] = ports_.counts(port).control - since_[port].counts.control;
    }
    double all = 0;
    for (const auto& [port, count] : sent) {
        all += static_cast<double>(count);
    }
    return received > 0 ? all / received : 0;
}

// Ports count what was skipped. What passes a bundle divides among its ports as before; answers are as many for each packet as
// receivers sent before.
void Steady::count_skipped(const Group& group, std::int64_t time) {
    struct Share {
        double there = 0, back = 0, before = 0;  ///< packets: skipped, of data and of those answered; received before
    };
    std::map<std::uint32_t, Share> shares;
    auto began = static_cast<double>(group.since);
    for (const std::uint32_t id : group.flows) {
        const Track& track = tracks_[id];
        const auto before = static_cast<double>(flows_[id].received - track.received);
        if (flows_.log && before > 0) {
            std::uint64_t& marks = flows_.log->of(id).marks;
            marks += static_cast<std::uint64_t>(
                std::llround(moved_[id] * static_cast<double>(marks - track.marks) / before));
        }
        began = track.past.empty() ? began : std::min(began, track.past.front().at);
        for (const std::uint32_t bundle : track.ways.there) {
            shares[bundle].there += moved_[id];
            shares[bundle].before += before;
        }
        for (const std::uint32_t bundle : track.ways.back) {
            shares[bundle].back += moved_[id];
        }
    }
    const double observed = static_cast<double>(group.since) - began;
    for (const auto& [bundle, share] : shares) {
        const std::uint32_t width = sharing_.width(bundle);
        double data = 0;
        double control = 0;
        const auto more = [&](std::uint32_t port) {
            const Ports::Sent now = ports_.sent(port);
            return std::pair(static_cast<double>(now.packets - since_[port].packets),
                             static_cast<double>(now.counts.control - since_[port].counts.control));
        };
        for (std::uint32_t port = bundle; port < bundle + width; ++port) {
            data += more(port).first;
            control += more(port).second;
        }
        // Where all links of a fabric are one bundle a packet passes it several times.
        const bool often = setup_.routed != nullptr && width > 1 && share.before > 0;
        const double passes = often ? data / share.before : 1;
        for (std::uint32_t port = bundle; port < bundle + width; ++port) {
            const auto [own_data, own_control] = more(port);
            const double of_data = data > 0 ? own_data / data : 1.0 / width;
            const double of_control = control > 0 ? own_control / control : 1.0 / width;
            const std::uint64_t bytes = ports_.bytes_sent(port);
            ports_.skip(port, share.there * passes * of_data, share.back * passes * group.answers * of_control,
                        since_[port], observed > 0 ? static_cast<double>(time) / observed : 0);
            more_bytes_[port] = ports_.bytes_sent(port) - bytes;
        }
    }
}

}  // namespace orrery::network::packet
