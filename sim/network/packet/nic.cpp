#include "sim/network/packet/nic.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::network::packet {

namespace {
constexpr double kLineRate = 1 - 1e-9;  // of it: no need to pace
// Marks of sending in a round trip: a loss shows a fourth of one later than it could.
constexpr std::int64_t kMarksPerTrip = 4;
}  // namespace

void Nics::begin_message(std::uint32_t id, std::uint32_t parts, const std::vector<std::uint32_t>& paths) {
    const MessageState message = messages_[id];
    const std::uint64_t packets = (message.bytes + setup_.mtu - 1) / setup_.mtu;
    parts = static_cast<std::uint32_t>(std::min<std::uint64_t>(parts, packets));
    if (packets / parts >= kNone) {
        throw InfeasibleError("a message of " + std::to_string(message.bytes) +
                              " bytes is more than 2^32 packets: raise network.mtu or split it");
    }
    const auto rails = static_cast<std::uint32_t>(setup_.spec.nic.rails);
    ORRERY_ASSERT(paths.empty() || paths.size() == parts);
    messages_[id].parts = messages_[id].of_all = parts;
    // Whole packets to each part, the last takes what remains.
    std::uint64_t left = message.bytes;
    for (std::uint32_t part = 0; part < parts; ++part) {
        const std::uint64_t share = packets / parts + (part < packets % parts ? 1 : 0);
        const std::uint64_t bytes = std::min(left, share * setup_.mtu);
        left -= bytes;
        const std::uint32_t flow = new_flow(id, bytes, part == 0 ? message.hash : mix64(message.hash + part), part);
        if (!paths.empty()) {
            flows_[flow].path.entropy = paths[part];
        }
        post(flow, part / rails == 0);
    }
    ORRERY_ASSERT(left == 0);
}

// When a NIC starts what is posted to it now, ps. Subflows of a message, all but the `first`, are one message to it.
std::int64_t Nics::posted_at(std::uint32_t nic_id, bool first) {
    Nic& nic = nics_[nic_id];
    const std::int64_t ready = clock_.now + SimTime::from_seconds(setup_.spec.nic.doorbell + setup_.spec.nic.dma).ps();
    if (setup_.spec.nic.message_rate <= 0) {
        return ready;
    }
    if (first) {
        nic.last_message = std::max(ready, nic.next_message);
        nic.next_message = nic.last_message + SimTime::from_seconds(1 / setup_.spec.nic.message_rate).ps();
    }
    return nic.last_message;
}

// Gives a flow to its NIC: at once, or when its queue pair has sent what came before.
void Nics::post(std::uint32_t id, bool first) {
    Flow& flow = flows_[id];
    if (flows_.close_at != kNone && flow.packets <= flows_.close_at && border_.owns(flow.destination)) {
        ++flows_.close;
    }
    const std::int64_t begins = posted_at(flow.source, first);
    if (setup_.spec.nic.queue_pairs > 0 && flow.reduction == kNone) {
        Peers& peers = peers_[{flow.source, flow.destination}];
        flow.queue_pair =
            static_cast<std::uint32_t>(peers.turn++ % static_cast<std::uint64_t>(setup_.spec.nic.queue_pairs));
        if (flow.queue_pair == peers.pairs.size()) {
            peers.pairs.emplace_back();
        }
        ORRERY_ASSERT(flow.queue_pair < peers.pairs.size());
        if (flow.queue_pair > 0 && !setup_.path_needs.plans) {
            flow.path.hash = mix64(flow.path.hash + flow.queue_pair);
            flow.path.entropy = setup_.paths.hashed(flow.path.hash);
        }
        if (tell_) {
            tell_(id, true);
        }
        if (!border_.owns(flow.source)) {
            return;
        }
        QueuePair& pair = peers.pairs[flow.queue_pair];
        if (pair.first != kNone) {
            flows_[pair.last].next_in_pair = id;
            pair.last = id;
            flow.earliest = begins;
            return;
        }
        pair.first = pair.last = id;
    } else if (tell_) {
        tell_(id, true);
    }
    if (!border_.owns(flow.source)) {
        return;  // another part sends it
    }
    if (begins == clock_.now) {
        start(id);
    } else {
        clock_.schedule(Timer::start, id, begins);
    }
}

// All packets of a flow have left once: the next message of its queue pair begins with what has been learnt of congestion.
void Nics::pass_on(std::uint32_t id) {
    const Flow& flow = flows_[id];
    QueuePair& pair = pair_of(flow);
    if (pair.first != id) {
        return;  // packets sent again
    }
    pair.first = flow.next_in_pair;
    pair.congestion = flow.congestion;
    pair.used = true;
    transport_.renumber(pair.congestion);
    if (pair.first != kNone) {
        const std::int64_t paced = flow.rate > 0 ? flow.next_time : clock_.now;
        clock_.schedule(Timer::start, pair.first, std::max({clock_.now, paced, flows_[pair.first].earliest}));
    }
}

// A NIC of a node, or the one that many rails further.
std::uint32_t Nics::nic_on_rail(std::uint32_t own, std::uint32_t rail) const {
    const std::uint32_t nics = setup_.fabric.shape().nics_per_node;
    return own / nics * nics + (own % nics + rail) % nics;
}

std::uint32_t Nics::new_flow(std::uint32_t message, std::uint64_t bytes, std::uint64_t hash, std::uint32_t part) {
    const std::uint32_t id = flows_.take();
    Flow& flow = flows_[id];
    flow.message = message;
    if (flows_.log) {
        flows_.log->begin(id, messages_[message].number);
    }
    const std::uint32_t rail = part % static_cast<std::uint32_t>(setup_.spec.nic.rails);
    const Fabric::Crossing crossing = setup_.fabric.crossing(messages_[message].from, messages_[message].to);
    flow.source = nic_on_rail(crossing.out, rail);
    flow.destination = nic_on_rail(crossing.in, rail);
    flow.packets = static_cast<std::uint32_t>((bytes + setup_.mtu - 1) / setup_.mtu);
    flow.last_payload = static_cast<std::uint32_t>(bytes - std::uint64_t{flow.packets - 1} * setup_.mtu);
    flow.path.hash = hash;
    flow.path.entropy = setup_.paths.hashed(hash);
    flow.path.sprayed = static_cast<std::uint32_t>(hash >> 40);
    if (setup_.transport.telemetry) {
        slab_.telemetry.forget(id);
    }
    chooser_.start(id);
    flow.timeout = setup_.timeout_between(flow.source, flow.destination, flow.path.entropy);
    if (setup_.probe > 0) {
        probes_.resize(std::max<std::size_t>(probes_.size(), flows_.size()));
    }
    if (setup_.transport.operation > 0) {
        early_.resize(std::max<std::size_t>(early_.size(), flows_.size()));
        early_[id].clear();
    }
    if (setup_.by_time) {
        marks_.resize(std::max<std::size_t>(marks_.size(), flows_.size()));
        marks_[id] = SendMarks();
    }
    flow.rate_limit = limit_of(messages_[message]);
    flow.live = true;
    flow.traffic_class = messages_[message].traffic_class;
    flow.last_notification = -Wheel::kNever / 2;
    transport_.start(flow.congestion);
    if (setup_.transport.credits) {
        const double first =
            setup_.transport.speculative > 0 ? setup_.transport.speculative : setup_.congestion.max_window;
        flow.credits = std::max<std::int64_t>(1, static_cast<std::int64_t>(first) / setup_.full) * setup_.full;
        flow.speculates = setup_.transport.backlog;
    }
    const bool here = border_.owns(flow.source) || border_.owns(flow.destination);
    if (setup_.transport.acknowledged && !setup_.go_back && here) {
        flows_.give_bitmaps(
            flow, std::min(setup_.capacity, std::max(64U, std::bit_ceil(std::min(flow.packets, setup_.capacity)))));
        flow.ahead = setup_.transport.ahead > 0 ? std::min(flow.ahead, setup_.transport.ahead) : flow.ahead;
        if (setup_.path_needs.windows > 0) {
            under_way_.start(id, setup_.path_needs.windows, flow.capacity);
        }
    }
    return id;
}

void Nics::retire(std::uint32_t id) {
    leave_plan(flows_[id]);
    flows_.retire(id);
}

void Nics::leave_plan(const Flow& flow) {
    const std::uint32_t from = setup_.leaf_of_nic[flow.source];
    const std::uint32_t to = setup_.leaf_of_nic[flow.destination];
    if (setup_.path_needs.plans && from != to) {
        chooser_.left(from, to, flow.path.entropy);
    }
}

double Nics::cancel(std::uint32_t message) {
    double missing = 0;
    for (std::uint32_t id = 0; id < flows_.size(); ++id) {
        if (flows_[id].live && flows_[id].message == message) {
            ORRERY_ASSERT(flows_[id].received <= flows_[id].packets);
            missing += static_cast<double>(flows_[id].packets - flows_[id].received) * setup_.mtu;
            cancel_flow(id);
        }
    }
    return missing;
}

// RingBuffers of NICs, timers and packets under way may still name the flow, so its slot is never given to another.
void Nics::cancel_flow(std::uint32_t id) {
    if (tell_) {
        tell_(id, false);
    }
    Flow& flow = flows_[id];
    ORRERY_ASSERT(flow.reduction == kNone);
    flow.live = false;
    flow.cancelled = true;
    ++flow.records;
    leave_plan(flow);
    if (setup_.spec.nic.queue_pairs == 0) {
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

void Nics::start(std::uint32_t id) {
    if (flows_[id].started) {
        send_again(id);
        return;
    }
    const bool reduces = flows_[id].reduction != kNone;
    if (setup_.spec.nic.queue_pairs > 0 && !reduces) {
        const QueuePair& pair = pair_of(flows_[id]);
        flows_[id].congestion = pair.used ? pair.congestion : flows_[id].congestion;
        arm_congestion(id);
    }
    ORRERY_ASSERT(flows_[id].sent_high == 0);
    flows_[id].started = true;
    flows_[id].last_news = flows_[id].next_time = clock_.now;
    adopt(flows_[id]);
    if (setup_.transport.acknowledged || reduces) {
        touch_deadline(id);
    }
    list(id);
}

// Takes window and rate over from the congestion control.
void Nics::adopt(Flow& flow) {
    flow.window = flow.congestion.window;
    flow.rate = flow.congestion.rate;
    if (flow.rate_limit > 0) {
        flow.rate = flow.rate > 0 ? std::min(flow.rate, flow.rate_limit) : flow.rate_limit;
    }
}

// Changes a flow's pace now. What it waits for shrinks or grows with it.
void Nics::limit(std::uint32_t id, double rate) {
    Flow& flow = flows_[id];
    const double before = flow.rate;
    flow.rate_limit = rate;
    adopt(flow);
    if (before == 0) {
        flow.next_time = std::max(flow.next_time, clock_.now);
    }
    if (flow.rate == before || flow.next_time <= clock_.now) {
        return;
    }
    const auto left = static_cast<double>(flow.next_time - clock_.now);
    flow.next_time = clock_.now + (flow.rate > 0 ? std::llround(left * before / flow.rate) : 0);
    if (flow.waiting_pace) {
        clock_.schedule(Timer::pace, id, flow.next_time);
    }
}

// B/s on the wire of each part of a message; 0: none below the line rate.
double Nics::limit_of(const MessageState& message) const {
    double rate = message.rate_limit;
    if (const double share = message.share * message.weight * setup_.full / setup_.mtu; share > 0) {
        rate = rate > 0 ? std::min(rate, share) : share;
        rate = rate >= setup_.congestion.line_rate * static_cast<double>(setup_.spec.nic.rails) * kLineRate ? 0 : rate;
    }
    return rate / message.of_all;
}

void Nics::set_shares(const std::vector<double>& rates) {
    for (std::uint32_t id = 0; id < flows_.size(); ++id) {
        const Flow& flow = flows_[id];
        if (!flow.live || messages_[flow.message].weight <= 0) {
            continue;
        }
        MessageState& message = messages_[flow.message];
        ORRERY_ASSERT(message.token < rates.size());
        message.share = rates[message.token];
        if (const double rate = limit_of(message); rate != flow.rate_limit) {
            if (tell_) {
                tell_(id, false);
            }
            limit(id, rate);
        }
    }
}

void Nics::shift_flow(std::uint32_t id, const Shift& by) {
    transport_.shift(flows_[id].congestion, by);
    chooser_.shift(id, by.time);
    if (setup_.by_time) {
        marks_[id].shift(by.time, by.packets);
    }
    if (setup_.probe > 0) {
        probes_[id].at += by.time;
        probes_[id].end += by.packets;
    }
    if (setup_.path_needs.windows > 0) {
        under_way_.shift(id, by.packets);
    }
    flows_.shift(id, by);
}

bool Nics::may_send(const Flow& flow) const {
    const bool within_bitmap = flow.next_new - flow.acked < flow.ahead;
    if (flow.lost == 0 && (flow.next_new == flow.packets || !within_bitmap)) {
        return false;
    }
    if (setup_.transport.credits && flow.credits <= 0) {
        return false;
    }
    return flow.in_flight == 0 || static_cast<double>(flow.in_flight + setup_.full) <= flow.window;
}

// Puts a flow among those that its NIC serves in turn, if it has something to send and may.
void Nics::list(std::uint32_t id) {
    Flow& flow = flows_[id];
    if (flow.listed || flow.waiting_pace || !flow.started || !may_send(flow)) {
        return;
    }
    if (flow.rate > 0 && flow.next_time > clock_.now) {
        flow.waiting_pace = true;
        clock_.schedule(Timer::pace, id, flow.next_time);
        return;
    }
    Nic& nic = nics_[flow.source];
    std::uint32_t& ring = setup_.laned ? rings_[flow.source * setup_.classes.size() + flow.traffic_class] : nic.sending;
    if (ring == kNone) {
        flow.next_flow = id;
    } else {
        flow.next_flow = flows_[ring].next_flow;
        flows_[ring].next_flow = id;
    }
    nic.sending = ring = id;
    flow.listed = true;
    kick(flow.source);
}

void Nics::on_pace(std::uint32_t id) {
    // Where the rate has changed since, another event counts.
    if (Flow& flow = flows_[id]; flow.waiting_pace && flow.next_time == clock_.now) {
        flow.waiting_pace = false;
        if (flow.live) {
            list(id);
        }
    }
}

// ps for which a packet is held back that is to come after all before it.
std::int64_t Nics::wait_of_operation(const Flow& flow) const {
    const double trip = flow.round_trip > 0 ? static_cast<double>(flow.round_trip) : setup_.congestion.base_rtt;
    return std::llround(setup_.transport.operation_wait * setup_.full / flow.window * trip);
}

// The next packet, and all behind it, leave later.
void Nics::hold_back(std::uint32_t id) {
    Flow& flow = flows_[id];
    const std::int64_t wait = wait_of_operation(flow);
    if (wait > 0) {
        flow.next_time = std::max(flow.next_time, clock_.now + wait);
        flow.waiting_pace = true;
        clock_.schedule(Timer::pace, id, flow.next_time);
    }
}

// Packets that came before one that they were to come after are due.
void Nics::send_again(std::uint32_t id) {
    Flow& flow = flows_[id];
    std::vector<Early>& early = early_[id];
    for (const Early& one : early) {
        // Meanwhile a timeout may have taken it for lost, or sent it again with success.
        if (one.at <= clock_.now && flow.live && one.sequence >= flow.acked &&
            !flows_.test(flow, Bits::acknowledged, one.sequence) && !flows_.test(flow, Bits::lost, one.sequence)) {
            lose(id, one.sequence);
        }
    }
    std::erase_if(early, [&](const Early& one) { return one.at <= clock_.now; });
    if (flow.live) {
        list(id);
    }
    flows_.let_go(id);
}

// The path that a packet takes where its transport has a window for each.
std::uint32_t Nics::choose_path(std::uint32_t id, std::uint32_t sequence) {
    Flow& flow = flows_[id];
    flow.path.sprayed = transport_.choose_path(flow.congestion, under_way_.of(id));
    under_way_.take(id, sequence, flow.path.sprayed % kMostPaths);
    return chooser_.pick(id, flow.path, clock_.now);
}

bool Nics::send_packet(std::uint32_t id) {
    Flow& flow = flows_[id];
    std::uint32_t sequence = flow.next_new;
    if (flow.lost > 0) {
        sequence = flows_.first_lost(flow);
        flows_.clear(flow, Bits::lost, sequence);
        --flow.lost;
        if (setup_.transport.credits) {
            flow.overtaken = std::min(flow.overtaken, sequence);  // under way anew, and paced: it may take its time
        }
        if (setup_.by_time) {
            marks_[id].clear();
        }
    } else {
        ++flow.next_new;
    }
    ORRERY_ASSERT(sequence < flow.packets);
    const bool repeated = sequence < flow.sent_high;
    flows_.counts.retransmissions += repeated ? 1 : 0;
    flow.sent_high = std::max(flow.sent_high, sequence + 1);
    const std::uint32_t path = chooser_.pick(id, flow.path, clock_.now);
    const std::uint32_t packet = slab_.take();
    Packet& p = slab_[packet];
    p.sent = clock_.now;
    p.flow = id;
    p.sequence = sequence;
    p.cumulative = 0;
    p.size = flows_.size_of(flow, sequence);
    p.destination = flow.destination;
    p.path = path;
    p.ingress = kNone;
    p.lane = static_cast<std::uint8_t>(flow.traffic_class * setup_.lanes_per_class);
    p.kind = PacketKind::data;
    p.flags = flow.reduction == kNone ? 0 : kReduces;
    // One question for all that few transports and tables want.
    if (setup_.more_to_send) [[unlikely]] {
        if (setup_.transport.credits) {
            flow.credits -= setup_.full;
        }
        if (flows_.log) {
            p.way = 0;
            FlowCounts& own = flows_.log->of(id);
            ++own.sent;
            own.bytes += p.size;
            own.retransmissions += repeated ? 1 : 0;
        }
        if (setup_.by_time && flow.lost == 0) {
            marks_[id].add(clock_.now, flow.next_new,
                           static_cast<std::int64_t>(setup_.congestion.base_rtt) / kMarksPerTrip);
        }
        if (setup_.path_needs.windows > 0 && flow.reduction == kNone) {
            p.path = choose_path(id, sequence);
        }
        if (setup_.transport.backlog) {
            p.selected = flow.asked = std::max(flow.asked, credit_wanted(flow));
        }
        if (setup_.transport.telemetry) {
            slab_.telemetry.clear(packet);
        }
    }
    ++flow.records;
    ++flows_.counts.sent;
    const double size = p.size;
    if (setup_.transport.acknowledged || flow.reduction != kNone) {
        flow.in_flight += p.size;
        if (setup_.transport.counts_bytes && flow.reduction == kNone) {
            transport_.on_sent(flow.congestion, size);
            adopt(flow);
        }
    }
    const bool more = may_send(flow);
    const bool small = flow.window < setup_.ask_below;
    p.flags |= more && !small && !(repeated && setup_.transport.eager) ? 0 : kAsks;
    if (flow.rate > 0) {
        const double gap = size / flow.rate * 1e12;
        // Ideal flows make up for what they wait behind others at their NIC, or they would fall behind their share.
        flow.next_time =
            (setup_.transport.acknowledged ? std::max(flow.next_time, clock_.now) : flow.next_time) + std::llround(gap);
    }
    if (setup_.spec.nic.queue_pairs > 0 && flow.next_new == flow.packets && flow.reduction == kNone) {
        pass_on(id);
    }
    const std::uint32_t port = setup_.base[0] + flow.source;
    ports_.send(port, packet);
    if (setup_.more_to_send && !repeated && flow.next_new < flow.packets && flows_.synchronises(flow, flow.next_new)) {
        hold_back(id);
        return more && !flow.waiting_pace;
    }
    return more;
}

// Sends a packet of the ring's first flow; false: it had none to send, and has left the ring.
bool Nics::send_next(Nic& nic, std::uint32_t nic_id, std::uint32_t& ring) {
    const Port& port = ports_[setup_.base[0] + nic_id];
    const std::uint32_t id = flows_[ring].next_flow;
    Flow& flow = flows_[id];
    const bool sends = flow.live && may_send(flow);
    const bool stays = sends && send_packet(id) && flow.rate == 0;
    if (stays) {
        ring = id;  // from the front of the ring to its end
    } else {
        flow.listed = false;
        if (id == ring) {
            ring = kNone;
        } else {
            flows_[ring].next_flow = flow.next_flow;
        }
    }
    if (!sends) {
        return false;
    }
    nic.free_at = std::max(clock_.now + 1, port.busy_until);
    if (setup_.spec.nic.host_rate > 0) {
        const double feeding = 1e12 * setup_.full / setup_.spec.nic.host_rate;
        nic.host_time = std::max(nic.host_time, clock_.now) + std::llround(feeding);
        nic.free_at = std::max(nic.free_at, nic.host_time);
    }
    if (!stays) {
        list(id);
    }
    return true;
}

void Nics::commit(std::uint32_t nic_id) {
    Nic& nic = nics_[nic_id];
    Port& port = ports_[setup_.base[0] + nic_id];
    if (setup_.served) {
        ports_.settle(setup_.base[0] + nic_id);
        if (port.paused || port.down) {
            return;  // resuming, or the link's return, kicks
        }
        // What waits at the port leaves first, or each acknowledgement would leave one packet more in it.
        if (port.busy_until <= clock_.now) {
            ports_.serve_before_data(setup_.base[0] + nic_id);
        }
        if (port.busy_until > clock_.now) {
            nic.free_at = port.busy_until;
            kick(nic_id);
            return;
        }
    }
    if (setup_.laned) {
        commit_by_class(nic_id);
        return;
    }
    while (nic.sending != kNone && !send_next(nic, nic_id, nic.sending)) {
    }
    kick(nic_id);
}

// The same where a NIC has a ring of flows for each class: whose turn it is, of those that may send in their first lane.
void Nics::commit_by_class(std::uint32_t nic_id) {
    Nic& nic = nics_[nic_id];
    const std::uint32_t port = setup_.base[0] + nic_id;
    const auto classes = static_cast<std::uint32_t>(setup_.classes.size());
    std::uint32_t* const rings = &rings_[std::size_t{nic_id} * classes];
    for (;;) {
        std::uint32_t ready = 0;
        nic.sending = kNone;
        for (std::uint32_t i = 0; i < classes; ++i) {
            nic.sending = rings[i] == kNone ? nic.sending : rings[i];
            const bool sends = rings[i] != kNone && ports_.lane_may_send(port, i * setup_.lanes_per_class, setup_.full);
            ready |= sends ? 1U << i : 0U;
        }
        if (ready == 0) {
            return;  // resuming, or room that comes back, kicks
        }
        const std::uint32_t own = turns_.pick(nic_id, ready);
        if (send_next(nic, nic_id, rings[own])) {
            turns_.charge(nic_id, own, setup_.full);
            break;
        }
    }
    for (std::uint32_t i = 0; i < classes; ++i) {
        nic.sending = rings[i] == kNone ? nic.sending : rings[i];
    }
    kick(nic_id);
}

// Credit in all, bytes, that a flow could use: for what it has to send, at most a window ahead. Until its receiver is heard it asks
// for a packet's at least, as its own credit then ends.
std::uint64_t Nics::credit_wanted(const Flow& flow) const {
    const std::int64_t window =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(setup_.congestion.max_window) / setup_.full) * setup_.full;
    const std::int64_t left = (std::int64_t{flow.packets} - flow.next_new + flow.lost) * setup_.full;
    const std::int64_t more = std::min(left, window) - flow.credits;
    const std::int64_t least = flow.speculates && left > 0 ? setup_.full : 0;
    return flow.credited + static_cast<std::uint64_t>(std::max(more, least));
}

}  // namespace orrery::network::packet
