// Receivers: what has arrived, and what is sent back for it.

#include "sim/network/packet/network.hpp"

#include <algorithm>

namespace orrery::packet {

void Network::deliver(std::uint32_t id) {
    // A copy: answering may grow the slab.
    const Packet p = slab_[id];
    switch (p.kind) {
        case PacketKind::data:
            ++arrived_;
            receive_data(p);
            break;
        case PacketKind::trimmed:
            ++arrived_;
            if (flows_[p.flow].live) {
                notify(p);
                reply(PacketKind::nack, p, 0);
                if (credited_) {
                    want_credit(p.flow);
                }
            }
            break;
        case PacketKind::ack:
            on_acknowledgement(p);
            break;
        case PacketKind::nack:
            on_report(p);
            break;
        case PacketKind::notification:
            on_notification(p.flow);
            break;
        case PacketKind::credit:
            ++flows_[p.flow].credits;
            list(p.flow);
            break;
    }
    discard(id);
}

// DCQCN's notification point. A marked packet counts even if go-back-N throws it away, and trimming is a mark as well.
void Network::notify(const Packet& p) {
    Flow& flow = flows_[p.flow];
    if (notifies_ && now_ - flow.last_notification >= notification_gap_) {
        flow.last_notification = now_;
        reply(PacketKind::notification, p, 0);
    }
}

void Network::receive_data(const Packet& p) {
    Flow& flow = flows_[p.flow];
    const bool marked = (p.flags & kMarked) != 0;
    bool fresh = true;
    if (marked) {
        notify(p);
    }
    if (!acknowledged_) {
        ++flow.received;
    } else if (go_back_) {
        fresh = p.sequence == flow.expected;
        if (fresh) {
            ++flow.expected;
            ++flow.received;
            flow.nack_sent = false;
        } else if (p.sequence > flow.expected) {
            // One report a gap; until it is closed everything behind it is thrown away.
            if (!flow.nack_sent) {
                flow.nack_sent = true;
                reply(PacketKind::nack, p, 0);
            }
            return;
        }
    } else {
        fresh = p.sequence >= flow.expected && !test(flow, Bits::received, p.sequence);
        if (fresh) {
            set(flow, Bits::received, p.sequence);
            ++flow.received;
            while (flow.expected < flow.packets && test(flow, Bits::received, flow.expected)) {
                clear(flow, Bits::received, flow.expected);
                ++flow.expected;
            }
        }
    }
    if (fresh) {
        ++delivered_;
        payload_delivered_ += p.size - header_;
    }
    const bool complete = fresh && flow.received == flow.packets && !flow.cancelled;
    if (acknowledged_) {
        if (go_back_ || !fresh) {
            reply(PacketKind::ack, p, marked ? kMarked : 0);
        } else {
            // An acknowledgement tells of 64 packets in a row. The sender asks for one when it has to wait.
            if (flow.untold > 0 && (p.sequence >= flow.untold_low + 64 || p.sequence + 64 <= flow.untold_high)) {
                acknowledge_untold(p);
            }
            flow.untold_low = flow.untold == 0 ? p.sequence : std::min(flow.untold_low, p.sequence);
            flow.untold_high = flow.untold == 0 ? p.sequence : std::max(flow.untold_high, p.sequence);
            ++flow.untold;
            if (marked || complete || flow.untold >= tell_every_ || (p.flags & kAsks) != 0) {
                acknowledge_untold(p);
            }
        }
        if (credited_ && !complete && flow.received < flow.packets) {
            want_credit(p.flow);
        }
    }
    if (complete) {
        flow_received(p.flow);
    }
}

void Network::acknowledge_untold(const Packet& p) {
    Flow& flow = flows_[p.flow];
    Packet about = p;
    about.sequence = std::max(flow.untold_low, flow.expected);
    // Bits beyond the receiver's window would be those of earlier packets again.
    const std::uint32_t ahead = flow.expected + flow.capacity - about.sequence;
    std::uint64_t bits = about.sequence < flow.packets ? bits_from(flow, Bits::received, about.sequence) : 0;
    if (ahead < 64) {
        bits &= (1ULL << ahead) - 1;
    }
    flow.untold = 0;
    reply(PacketKind::ack, about, p.flags & kMarked, bits);
}

void Network::reply(PacketKind kind, const Packet& data, std::uint8_t flags, std::uint64_t selected) {
    Flow& flow = flows_[data.flow];
    const std::uint32_t id = slab_.take();
    Packet& p = slab_[id];
    p.arrival = now_;
    p.sent = data.sent;
    p.flow = data.flow;
    p.sequence = data.sequence;
    p.selected = selected;
    p.cumulative = flow.expected;
    p.size = header_;
    p.destination = flow.source;
    p.path = data.path;
    p.ingress = kNone;
    p.kind = kind;
    p.flags = flags;
    ++flow.records;
    const std::uint32_t port = base_[0] + flow.destination;
    if (served_) {
        enqueue_served(port, id);
    } else {
        forward(port, id);
    }
}

void Network::flow_received(std::uint32_t id) {
    const Flow& flow = flows_[id];
    if (!spec_.nic.done_at_sender || !acknowledged_) {
        finish_part(flow.message);
    }
    if (!acknowledged_ || flow.acked == flow.packets) {
        retire(id);
    }
}

// Receiver-driven: every packet that arrives, whole or trimmed, is worth a credit for another one.
void Network::want_credit(std::uint32_t id) {
    Flow& flow = flows_[id];
    ++flow.granted;
    const std::uint32_t nic_id = flow.destination;
    Nic& nic = nics_[nic_id];
    if (!flow.grant_listed) {
        flow.grant_listed = true;
        flow.next_grant = nic.granting == kNone ? id : flows_[nic.granting].next_grant;
        if (nic.granting != kNone) {
            flows_[nic.granting].next_grant = id;
        }
        nic.granting = id;
    }
    if (!nic.grant_armed) {
        nic.grant_armed = true;
        schedule(Timer::grant, nic_id, std::max(now_, nic.next_grant));
    }
}

void Network::grant(std::uint32_t nic_id) {
    Nic& nic = nics_[nic_id];
    nic.grant_armed = false;
    while (nic.granting != kNone) {
        const std::uint32_t id = flows_[nic.granting].next_grant;
        Flow& flow = flows_[id];
        const bool alone = id == nic.granting;
        const bool wanted = flow.live && flow.granted > 0 && flow.received < flow.packets;
        if (wanted) {
            --flow.granted;
        }
        if (wanted && flow.granted > 0) {
            nic.granting = id;  // to the end of the ring
        } else {
            flow.grant_listed = false;
            if (alone) {
                nic.granting = kNone;
            } else {
                flows_[nic.granting].next_grant = flow.next_grant;
            }
        }
        if (!wanted) {
            continue;
        }
        Packet about{};
        about.flow = id;
        about.path = flow.path.entropy;
        reply(PacketKind::credit, about, 0);
        // Credits leave at the pace at which the receiver's link can bring full packets.
        nic.next_grant = now_ + ports_[base_[1] + nic_id].full_time;
        break;
    }
    if (nic.granting != kNone) {
        nic.grant_armed = true;
        schedule(Timer::grant, nic_id, nic.next_grant);
    }
}

}  // namespace orrery::packet
