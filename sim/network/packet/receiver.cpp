#include "sim/network/packet/receiver.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::network::packet {

// DCQCN's notification point. A marked packet counts even if go-back-N throws it away, and trimming is a mark as well.
void Receivers::notify(const Packet& p) {
    Flow& flow = flows_[p.flow];
    if (setup_.notifies && clock_.now - flow.last_notification >= setup_.notification_gap) {
        flow.last_notification = clock_.now;
        reply(PacketKind::notification, p, 0);
    }
}

// Go-back-N: whether this is the next packet. One report a gap; until it is closed everything behind it is thrown away.
bool Receivers::in_order(Flow& flow, const Packet& p) {
    if (p.sequence == flow.expected) {
        ++flow.expected;
        flow.nack_sent = false;
        return true;
    }
    if (p.sequence > flow.expected && !flow.nack_sent) {
        flow.nack_sent = true;
        reply(PacketKind::nack, p, 0);
    }
    return false;
}

// Whether this packet has not come before.
bool Receivers::unseen(Flow& flow, const Packet& p) {
    if (p.sequence < flow.expected) {
        return false;
    }
    // The bit of the packet that is expected next is not set: what comes out of order moves nothing on.
    if (p.sequence != flow.expected) {
        std::uint64_t& word = flows_.word(flow, Bits::received, p.sequence);
        const std::uint64_t bit = 1ULL << (p.sequence & 63);
        const bool news = (word & bit) == 0;
        word |= bit;
        return news;
    }
    ++flow.expected;
    while (flow.expected < flow.packets && flows_.test(flow, Bits::received, flow.expected)) {
        flows_.clear(flow, Bits::received, flow.expected);
        ++flow.expected;
    }
    return true;
}

// Answers a data packet, now or with later ones.
void Receivers::tell(Flow& flow, const Packet& p, bool fresh, bool complete) {
    const std::uint8_t marked = p.flags & kMarked;
    if (!fresh) {
        reply(PacketKind::ack, p, marked | kRepeated);
    } else if (setup_.go_back) {
        // It tells of all before it.
        if (++flow.untold >= setup_.tell_every || marked != 0 || complete || (p.flags & kAsks) != 0) {
            flow.untold = 0;
            reply(PacketKind::ack, p, marked);
        }
    } else {
        // An acknowledgement tells of 64 packets in a row. The sender asks for one when it has to wait.
        if (flow.untold > 0 && (p.sequence >= flow.untold_low + 64 || p.sequence + 64 <= flow.untold_high)) {
            acknowledge_untold(p);
        }
        flow.untold_low = flow.untold == 0 ? p.sequence : std::min(flow.untold_low, p.sequence);
        flow.untold_high = flow.untold == 0 ? p.sequence : std::max(flow.untold_high, p.sequence);
        ++flow.untold;
        if (marked != 0 || complete || flow.untold >= setup_.tell_every || (p.flags & kAsks) != 0 ||
            (setup_.transport.eager && flow.received == 1)) {
            acknowledge_untold(p);
        }
    }
    if (setup_.transport.credits && !complete && flow.received < flow.packets) {
        want_credit(p.flow, setup_.transport.backlog ? p.selected : flow.wanted + setup_.full);
    }
}

void Receivers::receive_data(const Packet& p) {
    Flow& flow = flows_[p.flow];
    const bool acknowledged = setup_.transport.acknowledged;
    if ((p.flags & kMarked) != 0) {
        notify(p);
    }
    if (setup_.transport.operation > 0 && p.sequence > flow.expected && flows_.synchronises(flow, p.sequence)) {
        reply(PacketKind::nack, p, kEarly);
        return;
    }
    const bool fresh = !acknowledged || (setup_.go_back ? in_order(flow, p) : unseen(flow, p));
    if (fresh) {
        ORRERY_ASSERT(flow.received < flow.packets);
        if (flow.packets - ++flow.received == flows_.close_at) {
            ++flows_.close;
        }
        ++flows_.counts.delivered;
        flows_.counts.payload += p.size - setup_.header;
    } else if (setup_.go_back && p.sequence > flow.expected) {
        return;
    } else if (flows_.log) {
        ++flows_.log->of(p.flow).needless;
    }
    const bool complete = fresh && flow.received == flow.packets && !flow.cancelled;
    if (acknowledged) {
        tell(flow, p, fresh, complete);
    }
    if (complete) {
        ORRERY_ASSERT(!acknowledged || flow.expected == flow.packets);
        flows_.close -= flows_.close_at != kNone ? 1 : 0;
        flow_received(p.flow);
    }
}

// A data packet waits until its NIC has written it; false: it has no room, and is lost.
bool Receivers::wait_for_host(std::uint32_t id) {
    const Packet p = slab_[id];
    const std::uint32_t nic = p.destination;
    Writing& own = writing_[nic];
    if (setup_.spec.nic.buffer > 0 && static_cast<double>(own.bytes + p.size) > setup_.spec.nic.buffer) {
        if (setup_.transport.hears_buffers && !flows_[p.flow].cancelled) {
            reply(PacketKind::nack, p, kNoRoom);
        }
        ports_.lose_at_nic(setup_.base[1] + nic, id);
        return false;
    }
    const std::int64_t begins = own.waiting.empty() ? clock_.now : own.waiting.back().at;
    const double time = 1e12 * p.size / setup_.spec.nic.write_rate;
    own.waiting.push_back({begins + std::max<std::int64_t>(1, std::llround(time)), clock_.now, id});
    own.bytes += p.size;
    if (own.waiting.size() == 1) {
        clock_.schedule(Timer::write, nic, own.waiting.front().at);
    }
    return true;
}

void Receivers::write(std::uint32_t nic) {
    Writing& own = writing_[nic];
    ORRERY_ASSERT(!own.waiting.empty() && own.waiting.front().at <= clock_.now);
    const Writing::Waiting written = own.waiting.front();
    own.waiting.pop_front();
    const Packet p = slab_[written.packet];
    own.bytes -= p.size;
    ORRERY_ASSERT(own.bytes >= 0 && (own.bytes == 0) == own.waiting.empty());
    own.held = written.at - written.came;
    if (!own.waiting.empty()) {
        clock_.schedule(Timer::write, nic, own.waiting.front().at);
    }
    if (setup_.transport.telemetry) {
        slab_.telemetry.arriving = written.packet;
    }
    ++flows_.counts.arrived;
    receive_data(p);
    flows_.discard(written.packet);
}

// What a receiver's answer says of its NIC.
void Receivers::tell_buffer(std::uint32_t nic, Packet& answer) const {
    const Writing& own = writing_[nic];
    const double share = setup_.spec.nic.buffer > 0 ? static_cast<double>(own.bytes) / setup_.spec.nic.buffer : 0;
    constexpr std::int64_t kMostHeld = (1 << 27) - 1;  // ns
    answer.held = static_cast<std::uint32_t>(std::min(own.held / 1000, kMostHeld)) & kMostHeld;
    answer.filled = static_cast<std::uint32_t>(std::min(share * (kFull + 1), static_cast<double>(kFull))) & kFull;
}

void Receivers::deliver(std::uint32_t id) {
    // A copy: answering may grow the slab.
    const Packet p = slab_[id];
    if (setup_.transport.telemetry) {
        slab_.telemetry.arriving = id;
    }
    if (p.kind == PacketKind::data) [[likely]] {
        if (!writing_.empty()) [[unlikely]] {
            (void)wait_for_host(id);
            return;
        }
        ++flows_.counts.arrived;
        receive_data(p);
        flows_.discard(id);
        return;
    }
    switch (p.kind) {
        case PacketKind::data:
            break;  // above
        case PacketKind::trimmed:
            ++flows_.counts.arrived;
            // Whether the sender has heard of all by now, the receiver cannot know.
            if (!flows_[p.flow].cancelled) {
                notify(p);
                reply(PacketKind::nack, p, p.flags & (kMarked | kLastHop));
                if (setup_.transport.credits) {
                    hear_backlog(p);
                    want_credit(p.flow, flows_[p.flow].wanted + setup_.full);
                }
            }
            break;
        case PacketKind::request:
            want_credit(p.flow, p.selected);
            break;
        case PacketKind::ack:
            nics_.on_acknowledgement(p);
            break;
        case PacketKind::nack:
            nics_.on_report(p);
            break;
        case PacketKind::notification:
            nics_.on_notification(p.flow);
            break;
        case PacketKind::credit:
            nics_.on_credit(p);
            break;
    }
    flows_.discard(id);
}

void Receivers::acknowledge_untold(const Packet& p) {
    Flow& flow = flows_[p.flow];
    Packet about = p;
    ORRERY_ASSERT(flow.untold > 0 && flow.untold_low <= flow.untold_high);
    about.sequence = std::max(flow.untold_low, flow.expected);
    // Bits beyond the receiver's window would be those of earlier packets again.
    const std::uint32_t ahead = flow.expected + flow.capacity - about.sequence;
    std::uint64_t bits = about.sequence < flow.packets ? flows_.bits_from(flow, Bits::received, about.sequence) : 0;
    if (ahead < 64) {
        bits &= (1ULL << ahead) - 1;
    }
    flow.untold = 0;
    reply(PacketKind::ack, about, p.flags & kMarked, bits);
}

void Receivers::reply(PacketKind kind, const Packet& data, std::uint8_t flags, std::uint64_t selected) {
    Flow& flow = flows_[data.flow];
    const std::uint32_t id = slab_.take();
    Packet& p = slab_[id];
    p.sent = data.sent;
    p.flow = data.flow;
    p.sequence = data.sequence;
    p.selected = selected;
    p.cumulative = flow.expected;
    p.size = setup_.header;
    p.destination = flow.source;
    p.path = data.path;
    p.ingress = kNone;
    p.kind = kind;
    p.flags = flags;
    if (setup_.transport.telemetry) {
        slab_.telemetry.carry(slab_.telemetry.arriving, id);
    }
    if (!writing_.empty()) {
        tell_buffer(flow.destination, p);
    }
    ++flow.records;
    const std::uint32_t port = setup_.base[0] + flow.destination;
    ports_.send(port, id);
}

void Receivers::flow_received(std::uint32_t id) {
    const Flow& flow = flows_[id];
    if (!setup_.spec.nic.done_at_sender || !setup_.transport.acknowledged) {
        nics_.finish_part(flow.message);
    }
    // Where there are acknowledgements the sender is done with the last of them.
    if (!setup_.transport.acknowledged) {
        nics_.retire(id);
    }
}

void Receivers::hear_backlog(const Packet& p) {
    if (setup_.transport.backlog) {
        flows_[p.flow].wanted = std::max(flows_[p.flow].wanted, p.selected);
    }
}

// A flow is to have this much credit in all: another packet's for each that arrives, whole or trimmed, or what it asks for.
void Receivers::want_credit(std::uint32_t id, std::uint64_t total) {
    Flow& flow = flows_[id];
    flow.wanted = std::max(flow.wanted, total);
    if (flow.cancelled || flow.given >= flow.wanted || flow.received == flow.packets) {
        return;
    }
    const std::uint32_t nic_id = flow.destination;
    Granting& nic = granting_[nic_id];
    if (!flow.grant_listed) {
        flow.grant_listed = true;
        ++flow.records;  // its slot is not another flow's before it has left the ring
        flow.next_grant = nic.flows == kNone ? id : flows_[nic.flows].next_grant;
        if (nic.flows != kNone) {
            flows_[nic.flows].next_grant = id;
        }
        nic.flows = id;
    }
    if (!nic.armed) {
        nic.armed = true;
        clock_.schedule(Timer::grant, nic_id, std::max(clock_.now, nic.next));
    }
}

void Receivers::grant(std::uint32_t nic_id) {
    Granting& nic = granting_[nic_id];
    nic.armed = false;
    while (nic.flows != kNone) {
        const std::uint32_t id = flows_[nic.flows].next_grant;
        Flow& flow = flows_[id];
        ORRERY_ASSERT(flow.grant_listed);
        const bool alone = id == nic.flows;
        const bool wanted = !flow.cancelled && flow.given < flow.wanted && flow.received < flow.packets;
        if (wanted) {
            flow.given += setup_.full;
        }
        if (wanted && flow.given < flow.wanted) {
            nic.flows = id;  // to the end of the ring
        } else {
            flow.grant_listed = false;
            if (alone) {
                nic.flows = kNone;
            } else {
                flows_[nic.flows].next_grant = flow.next_grant;
            }
        }
        const bool left = !flow.grant_listed;
        if (wanted) {
            Packet about{};
            about.flow = id;
            about.path = flow.path.entropy;
            reply(PacketKind::credit, about, 0, flow.given);
            // Credits leave at the pace at which the receiver's link can bring full packets.
            nic.next = clock_.now + ports_.link(setup_.base[1] + nic_id).full_time;
        }
        if (left) {
            flows_.let_go(id);
        }
        if (wanted) {
            break;
        }
    }
    if (nic.flows != kNone) {
        nic.armed = true;
        clock_.schedule(Timer::grant, nic_id, nic.next);
    }
}

}  // namespace orrery::network::packet
