// Senders: messages become flows, and flows packets, when windows, rates and the NIC let them.

#include "sim/network/packet/network.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::packet {

namespace {
constexpr std::uint32_t kMostFlows = 1U << 24;  // 8 GiB of records
constexpr double kLineRate = 1 - 1e-9;          // of it: no need to pace
}  // namespace

void Network::begin_message(std::uint32_t id, std::uint32_t parts, const std::vector<std::uint32_t>& paths) {
    const Message message = messages_[id];
    const std::uint64_t packets = (message.bytes + mtu_ - 1) / mtu_;
    parts = static_cast<std::uint32_t>(std::min<std::uint64_t>(parts, packets));
    if (packets / parts >= kNone) {
        throw InfeasibleError("a message of " + std::to_string(message.bytes) +
                              " bytes is more than 2^32 packets: raise network.mtu or split it");
    }
    const auto rails = static_cast<std::uint32_t>(spec_.nic.rails);
    messages_[id].parts = messages_[id].of_all = parts;
    // Whole packets to each part, the last takes what remains.
    std::uint64_t left = message.bytes;
    for (std::uint32_t part = 0; part < parts; ++part) {
        const std::uint64_t share = packets / parts + (part < packets % parts ? 1 : 0);
        const std::uint64_t bytes = std::min(left, share * mtu_);
        left -= bytes;
        const std::uint32_t flow = new_flow(id, bytes, part == 0 ? message.hash : mix64(message.hash + part), part);
        if (!paths.empty()) {
            flows_[flow].path.entropy = paths[part];
        }
        post(flow, part / rails == 0);
    }
}

// When a NIC starts what is posted to it now, ps. Subflows of a message, all but the `first`, are one message to it.
std::int64_t Network::posted_at(std::uint32_t nic_id, bool first) {
    Nic& nic = nics_[nic_id];
    const std::int64_t ready = now_ + SimTime::from_seconds(spec_.nic.doorbell + spec_.nic.dma).ps();
    if (spec_.nic.message_rate <= 0) {
        return ready;
    }
    if (first) {
        nic.last_message = std::max(ready, nic.next_message);
        nic.next_message = nic.last_message + SimTime::from_seconds(1 / spec_.nic.message_rate).ps();
    }
    return nic.last_message;
}

// Gives a flow to its NIC: at once, or when its queue pair has sent what came before.
void Network::post(std::uint32_t id, bool first) {
    Flow& flow = flows_[id];
    const std::int64_t start = posted_at(flow.source, first);
    if (spec_.nic.queue_pairs > 0 && flow.reduction == kNone) {
        Peers& peers = peers_[{flow.source, flow.destination}];
        flow.queue_pair = static_cast<std::uint32_t>(peers.turn++ % static_cast<std::uint64_t>(spec_.nic.queue_pairs));
        if (flow.queue_pair == peers.pairs.size()) {
            peers.pairs.emplace_back();
        }
        if (flow.queue_pair > 0 && !path_needs_.plans) {
            flow.path.hash = mix64(flow.path.hash + flow.queue_pair);
            flow.path.entropy = path_set_.hashed(flow.path.hash);
        }
        QueuePair& pair = peers.pairs[flow.queue_pair];
        if (pair.first != kNone) {
            flows_[pair.last].next_in_pair = id;
            pair.last = id;
            flow.earliest = start;
            return;
        }
        pair.first = pair.last = id;
    }
    if (start == now_) {
        start_flow(id);
    } else {
        schedule(Timer::start, id, start);
    }
}

// All packets of a flow have left once: the next message of its queue pair begins with what has been learnt of congestion.
void Network::pass_on(std::uint32_t id) {
    const Flow& flow = flows_[id];
    QueuePair& pair = pair_of(flow);
    if (pair.first != id) {
        return;  // packets sent again
    }
    pair.first = flow.next_in_pair;
    pair.congestion = flow.congestion;
    pair.used = true;
    transport_->renumber(pair.congestion);
    if (pair.first != kNone) {
        const std::int64_t paced = flow.rate > 0 ? flow.next_time : now_;
        schedule(Timer::start, pair.first, std::max({now_, paced, flows_[pair.first].earliest}));
    }
}

// The NIC of a GPU, or the one that many rails further.
std::uint32_t Network::nic_on_rail(GpuId gpu, std::uint32_t rail) const {
    const std::uint32_t own = fabric_.nic_of(gpu);
    const std::uint32_t nics = fabric_.shape().nics_per_node;
    return own / nics * nics + (own % nics + rail) % nics;
}

std::uint32_t Network::new_flow(std::uint32_t message, std::uint64_t bytes, std::uint64_t hash, std::uint32_t part) {
    std::uint32_t id = 0;
    if (free_flows_.empty()) {
        id = static_cast<std::uint32_t>(flows_.size());
        if (id >= kMostFlows) {
            throw InfeasibleError("more than 2^24 flows at once: too many for fidelity packet");
        }
        flows_.emplace_back();
    } else {
        id = free_flows_.back();
        free_flows_.pop_back();
    }
    Flow& flow = flows_[id];
    Flow fresh;
    // Events of the slot's last flow may still be in the heap.
    fresh.timer_armed = flow.timer_armed;
    fresh.congestion_armed = flow.congestion_armed;
    flow = fresh;
    flow.message = message;
    const std::uint32_t rail = part % static_cast<std::uint32_t>(spec_.nic.rails);
    flow.source = nic_on_rail(messages_[message].from, rail);
    flow.destination = nic_on_rail(messages_[message].to, rail);
    flow.packets = static_cast<std::uint32_t>((bytes + mtu_ - 1) / mtu_);
    flow.last_payload = static_cast<std::uint32_t>(bytes - std::uint64_t{flow.packets - 1} * mtu_);
    flow.path.hash = hash;
    flow.path.entropy = path_set_.hashed(hash);
    flow.path.sprayed = static_cast<std::uint32_t>(hash >> 40);
    paths_->start(id);
    flow.rate_limit = limit_of(messages_[message]);
    flow.live = true;
    flow.last_notification = -Wheel::kNever / 2;
    transport_->start(flow.congestion);
    if (credited_) {
        flow.credits = static_cast<std::uint64_t>(std::max(1.0, congestion_settings_.max_window / full_));
    }
    if (acknowledged_ && !go_back_) {
        give_bitmaps(flow, std::min(capacity_, std::max(64U, std::bit_ceil(std::min(flow.packets, capacity_)))));
    }
    return id;
}

// `capacity`: a power of two, 64 or more.
void Network::give_bitmaps(Flow& flow, std::uint32_t capacity) {
    flow.capacity = flow.ahead = capacity;
    const auto log = static_cast<std::size_t>(std::countr_zero(flow.capacity));
    if (free_bitmaps_.size() <= log) {
        free_bitmaps_.resize(log + 1);
    }
    const std::uint32_t words = 3 * capacity / 64;
    if (free_bitmaps_[log].empty()) {
        flow.bitmap = static_cast<std::uint32_t>(bitmaps_.size());
        bitmaps_.resize(bitmaps_.size() + words);
    } else {
        flow.bitmap = free_bitmaps_[log].back();
        free_bitmaps_[log].pop_back();
    }
    std::fill_n(bitmaps_.begin() + flow.bitmap, words, 0);
}

void Network::release_flow(std::uint32_t id) {
    const Flow& flow = flows_[id];
    if (flow.capacity > 0) {
        free_bitmaps_[static_cast<std::size_t>(std::countr_zero(flow.capacity))].push_back(flow.bitmap);
    }
    free_flows_.push_back(id);
}

void Network::finish_part(std::uint32_t id) {
    Message& message = messages_[id];
    if (--message.parts > 0) {
        return;
    }
    message.live = false;
    finished_at_ = now_;
    --live_messages_;
    completed_.push_back(message.token);
    free_messages_.push_back(id);
}

// Sender and receiver are done with a flow; its slot is free once no packet names it.
void Network::retire(std::uint32_t id) {
    Flow& flow = flows_[id];
    flow.live = false;
    leave_plan(flow);
    if (flow.records == 0) {
        release_flow(id);
    }
}

void Network::leave_plan(const Flow& flow) {
    const std::uint32_t from = leaf_of_nic_[flow.source];
    const std::uint32_t to = leaf_of_nic_[flow.destination];
    if (path_needs_.plans && from != to) {
        paths_->left(from, to, flow.path.entropy);
    }
}

double Network::cancel(std::uint64_t token) {
    double most = 0;
    for (std::uint32_t id = 0; id < messages_.size(); ++id) {
        Message& message = messages_[id];
        if (!message.live || message.token != token) {
            continue;
        }
        double missing = static_cast<double>(message.bytes);
        if (std::erase(unplanned_, id) == 0) {
            missing = 0;
            for (std::uint32_t flow = 0; flow < flows_.size(); ++flow) {
                if (flows_[flow].live && flows_[flow].message == id) {
                    missing += static_cast<double>(flows_[flow].packets - flows_[flow].received) * mtu_;
                    cancel_flow(flow);
                }
            }
        }
        most = std::max(most, std::min(1.0, missing / static_cast<double>(message.bytes)));
        message.live = false;
        finished_at_ = now_;
        --live_messages_;
        free_messages_.push_back(id);
    }
    return most;
}

// Rings of NICs, timers and packets under way may still name the flow, so its slot is never given to another.
void Network::cancel_flow(std::uint32_t id) {
    Flow& flow = flows_[id];
    ORRERY_ASSERT(flow.reduction == kNone);
    flow.live = false;
    flow.cancelled = true;
    ++flow.records;
    leave_plan(flow);
    if (spec_.nic.queue_pairs == 0) {
        return;
    }
    QueuePair& pair = pair_of(flow);
    if (pair.first == id) {
        pass_on(id);
        return;
    }
    for (std::uint32_t before = pair.first; before != kNone; before = flows_[before].next_in_pair) {
        if (flows_[before].next_in_pair == id) {
            flows_[before].next_in_pair = flow.next_in_pair;
            pair.last = pair.last == id ? before : pair.last;
            return;
        }
    }
}

void Network::start_flow(std::uint32_t id) {
    const bool reduces = flows_[id].reduction != kNone;
    if (spec_.nic.queue_pairs > 0 && !reduces) {
        const QueuePair& pair = pair_of(flows_[id]);
        flows_[id].congestion = pair.used ? pair.congestion : flows_[id].congestion;
        arm_congestion(id);
    }
    flows_[id].started = true;
    flows_[id].last_news = flows_[id].next_time = now_;
    adopt(id);
    if (acknowledged_ || reduces) {
        touch_deadline(id);
    }
    list(id);
}

// Takes window and rate over from the congestion control.
void Network::adopt(std::uint32_t id) {
    Flow& flow = flows_[id];
    flow.window = flow.congestion.window;
    flow.rate = flow.congestion.rate;
    if (flow.rate_limit > 0) {
        flow.rate = flow.rate > 0 ? std::min(flow.rate, flow.rate_limit) : flow.rate_limit;
    }
}

// Changes a flow's pace now. What it waits for shrinks or grows with it.
void Network::limit(std::uint32_t id, double rate) {
    Flow& flow = flows_[id];
    const double before = flow.rate;
    flow.rate_limit = rate;
    adopt(id);
    if (before == 0) {
        flow.next_time = std::max(flow.next_time, now_);
    }
    if (flow.rate == before || flow.next_time <= now_) {
        return;
    }
    const auto left = static_cast<double>(flow.next_time - now_);
    flow.next_time = now_ + (flow.rate > 0 ? std::llround(left * before / flow.rate) : 0);
    if (flow.waiting_pace) {
        schedule(Timer::pace, id, flow.next_time);
    }
}

// B/s on the wire of each part of a message; 0: none below the line rate.
double Network::limit_of(const Message& message) const {
    double rate = message.rate_limit;
    if (const double share = message.share * message.weight * full_ / mtu_; share > 0) {
        rate = rate > 0 ? std::min(rate, share) : share;
        rate = rate >= congestion_settings_.line_rate * static_cast<double>(spec_.nic.rails) * kLineRate ? 0 : rate;
    }
    return rate / message.of_all;
}

void Network::set_shares(const std::vector<double>& rates) {
    for (std::uint32_t id = 0; id < flows_.size(); ++id) {
        const Flow& flow = flows_[id];
        if (!flow.live || messages_[flow.message].weight <= 0) {
            continue;
        }
        Message& message = messages_[flow.message];
        message.share = rates[message.token];
        if (const double rate = limit_of(message); rate != flow.rate_limit) {
            limit(id, rate);
        }
    }
}

bool Network::may_send(const Flow& flow) const {
    const bool within_bitmap = flow.ahead == 0 || flow.next_new - flow.acked < flow.ahead;
    if (flow.lost == 0 && (flow.next_new == flow.packets || !within_bitmap)) {
        return false;
    }
    if (credited_ && flow.credits == 0) {
        return false;
    }
    return flow.in_flight == 0 || static_cast<double>(flow.in_flight + full_) <= flow.window;
}

// Puts a flow among those that its NIC serves in turn, if it has something to send and may.
void Network::list(std::uint32_t id) {
    Flow& flow = flows_[id];
    if (flow.listed || flow.waiting_pace || !flow.started || !may_send(flow)) {
        return;
    }
    if (flow.rate > 0 && flow.next_time > now_) {
        flow.waiting_pace = true;
        schedule(Timer::pace, id, flow.next_time);
        return;
    }
    Nic& nic = nics_[flow.source];
    if (nic.sending == kNone) {
        flow.next_flow = id;
    } else {
        flow.next_flow = flows_[nic.sending].next_flow;
        flows_[nic.sending].next_flow = id;
    }
    nic.sending = id;
    flow.listed = true;
    kick(flow.source);
}

void Network::kick(std::uint32_t nic_id) {
    const std::uint32_t entity = base_[kPortKinds] + nic_id;
    Nic& nic = nics_[nic_id];
    if (nic.sending == kNone || wheel_.pending(entity)) {
        return;
    }
    // A NIC that cannot send right now is woken when its last packet has left.
    if (nic.free_at > now_) {
        wheel_.insert(entity, nic.free_at);
    } else {
        commit(nic_id);
    }
}

void Network::commit(std::uint32_t nic_id) {
    Nic& nic = nics_[nic_id];
    Port& port = ports_[base_[0] + nic_id];
    if (served_) {
        if (port.paused || port.down) {
            return;  // resuming, or the link's return, kicks
        }
        if (port.busy_until > now_) {
            nic.free_at = port.busy_until;
            kick(nic_id);
            return;
        }
    }
    while (nic.sending != kNone) {
        const std::uint32_t id = flows_[nic.sending].next_flow;
        Flow& flow = flows_[id];
        const bool sends = flow.live && may_send(flow);
        const bool stays = sends && send_packet(id) && flow.rate == 0;
        if (stays) {
            nic.sending = id;  // from the front of the ring to its end
        } else {
            flow.listed = false;
            if (id == nic.sending) {
                nic.sending = kNone;
            } else {
                flows_[nic.sending].next_flow = flow.next_flow;
            }
        }
        if (!sends) {
            continue;
        }
        nic.free_at = std::max(now_ + 1, port.busy_until);
        if (spec_.nic.host_rate > 0) {
            const double feeding = 1e12 * full_ / spec_.nic.host_rate;
            nic.host_time = std::max(nic.host_time, now_) + std::llround(feeding);
            nic.free_at = std::max(nic.free_at, nic.host_time);
        }
        if (!stays) {
            list(id);
        }
        break;
    }
    kick(nic_id);
}

std::uint32_t Network::first_lost(const Flow& flow) const {
    // Bits of [acked, acked + capacity) in order of sequence.
    const std::uint32_t words = flow.capacity / 64;
    const std::uint64_t* bits = &bitmaps_[flow.bitmap + words];
    const std::uint32_t start = flow.acked & (flow.capacity - 1);
    for (std::uint32_t i = 0; i <= words; ++i) {
        const std::uint32_t at = (start / 64 + i) % words;
        std::uint64_t value = bits[at];
        if (i == 0) {
            value &= ~0ULL << (start & 63);
        } else if (i == words) {
            value &= (1ULL << (start & 63)) - 1;
        }
        if (value != 0) {
            const std::uint32_t position = at * 64 + static_cast<std::uint32_t>(std::countr_zero(value));
            return flow.acked + ((position - start) & (flow.capacity - 1));
        }
    }
    ORRERY_ASSERT(false);
    return 0;
}

bool Network::send_packet(std::uint32_t id) {
    Flow& flow = flows_[id];
    std::uint32_t sequence = flow.next_new;
    if (flow.lost > 0) {
        sequence = first_lost(flow);
        clear(flow, Bits::lost, sequence);
        --flow.lost;
    } else {
        ++flow.next_new;
    }
    const bool repeated = sequence < flow.sent_high;
    retransmissions_ += repeated ? 1 : 0;
    flow.sent_high = std::max(flow.sent_high, sequence + 1);
    if (credited_) {
        --flow.credits;
    }
    const std::uint32_t path = paths_->pick(id, flow.path, now_);
    const std::uint32_t packet = slab_.take();
    Packet& p = slab_[packet];
    p.arrival = now_;
    p.sent = now_;
    p.flow = id;
    p.sequence = sequence;
    p.cumulative = 0;
    p.size = size_of(flow, sequence);
    p.destination = flow.destination;
    p.path = path;
    p.ingress = kNone;
    p.kind = PacketKind::data;
    p.flags = flow.reduction == kNone ? 0 : kReduces;
    ++flow.records;
    ++sent_;
    const double size = p.size;
    if (acknowledged_ || flow.reduction != kNone) {
        flow.in_flight += p.size;
        if (counts_bytes_ && flow.reduction == kNone) {
            transport_->on_sent(flow.congestion, size);
            adopt(id);
        }
    }
    const bool more = may_send(flow);
    p.flags |= more ? 0 : kAsks;
    if (flow.rate > 0) {
        const double gap = size / flow.rate * 1e12;
        // Ideal flows make up for what they wait behind others at their NIC, or they would fall behind their share.
        flow.next_time = (acknowledged_ ? std::max(flow.next_time, now_) : flow.next_time) + std::llround(gap);
    }
    if (spec_.nic.queue_pairs > 0 && flow.next_new == flow.packets && flow.reduction == kNone) {
        pass_on(id);
    }
    const std::uint32_t port = base_[0] + flow.source;
    if (served_) {
        enqueue_served(port, packet);
    } else {
        forward(port, packet);
    }
    return more;
}

}  // namespace orrery::packet
