// What a sender makes of acknowledgements, reports of loss, notifications and timeouts.

#include "sim/network/packet/nic.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace orrery::network::packet {

namespace {
constexpr unsigned kManyTimeouts = 6;                      // the logarithm of how many; assumed
constexpr std::int64_t kLongest = 10'000'000'000'000'000;  // ps: no timeout is longer than 10,000 s
}  // namespace

// Three smoothed round trips, so that a long queue is not mistaken for a loss; never below the set timeout.
std::int64_t Nics::timeout_of(const Flow& flow) const {
    const std::int64_t timeout = std::min(kLongest, std::max(flow.timeout, 3 * flow.round_trip));
    return setup_.probe > 0 && probes(flow) ? std::max(setup_.probe, 2 * flow.round_trip) : timeout;
}

// Whether a flow that hears nothing probes before it takes all for lost.
bool Nics::probes(const Flow& flow) const {
    return setup_.probe > 0 && !flow.probed && flow.reduction == kNone && setup_.probe < flow.timeout &&
           2 * flow.round_trip < flow.timeout;
}

// Tail loss probe: the first packet that is not acknowledged is sent again, and nothing else changes.
void Nics::probe(std::uint32_t id) {
    Flow& flow = flows_[id];
    flow.probed = true;
    probes_[id] = {clock_.now, flow.next_new};
    if (!flows_.test(flow, Bits::lost, flow.acked)) {
        lose(id, flow.acked);
    }
    touch_deadline(id);
    list(id);
}

void Nics::touch_deadline(std::uint32_t id) {
    Flow& flow = flows_[id];
    flow.deadline = clock_.now + (timeout_of(flow) << std::min<unsigned>(flow.backoff, 6));
    flow.overtaken = flow.highest;
    if (!flow.timer_armed) {
        flow.timer_armed = true;
        clock_.schedule(Timer::retransmit, id, flow.deadline);
    }
}

// One packet is known to have arrived: it is no longer in flight, nor to be sent again.
void Nics::acknowledge(Flow& flow, std::uint32_t sequence, double& newly) {
    const std::uint32_t size = flows_.size_of(flow, sequence);
    newly += size;
    if (flows_.test(flow, Bits::lost, sequence)) {
        flows_.clear(flow, Bits::lost, sequence);
        --flow.lost;
    } else {
        flow.in_flight -= size;
    }
}

// What an acknowledgement tells of a flow whose packets are all acknowledged or under way, 64 packets at a time. Returns the bytes
// that are news.
double Nics::acknowledge_all(Flow& flow, const Packet& p) {
    std::uint32_t news = 0;     // packets,
    std::uint32_t lacking = 0;  // and bytes by which they are shorter than full ones
    const auto heard = [&](std::uint32_t first, std::uint64_t bits) {
        news += static_cast<std::uint32_t>(std::popcount(bits));
        if (const std::uint32_t last = flow.packets - 1; last - first < 64 && (bits >> (last - first) & 1) != 0) {
            lacking = setup_.full - flows_.size_of(flow, last);
        }
    };
    const std::uint32_t known = flow.acked > p.sequence ? std::min(64U, flow.acked - p.sequence) : 0;
    if (const std::uint64_t told = known < 64 ? p.selected >> known : 0; told != 0) {
        const std::uint32_t first = p.sequence + known;
        if (const std::uint64_t bits = told & ~flows_.bits_from(flow, Bits::acknowledged, first); bits != 0) {
            flows_.set_from(flow, Bits::acknowledged, first, bits);
            heard(first, bits);
            flow.highest = std::max(flow.highest, first + static_cast<std::uint32_t>(std::bit_width(bits)));
        }
    }
    while (flow.acked < flow.packets) {
        const std::uint64_t known_bits = flows_.bits_from(flow, Bits::acknowledged, flow.acked);
        const std::uint32_t before = p.cumulative > flow.acked ? p.cumulative - flow.acked : 0;
        const std::uint64_t all_before = before < 64 ? (1ULL << before) - 1 : ~0ULL;
        const auto run =
            std::min(static_cast<std::uint32_t>(std::countr_one(known_bits | all_before)), flow.packets - flow.acked);
        if (run == 0) {
            break;
        }
        const std::uint64_t bits = run < 64 ? (1ULL << run) - 1 : ~0ULL;
        heard(flow.acked, bits & ~known_bits);
        flows_.clear_from(flow, Bits::acknowledged, flow.acked, bits);
        flow.acked += run;
    }
    flow.highest = std::max(flow.highest, flow.acked);
    const std::int64_t bytes = std::int64_t{news} * setup_.full - lacking;
    flow.in_flight -= bytes;
    return static_cast<double>(bytes);
}

void Nics::on_acknowledgement(const Packet& p) {
    const std::uint32_t id = p.flow;
    Flow& flow = flows_[id];
    if (!flow.live || flow.acked == flow.packets) {
        return;
    }
    if (flow.speculates) {
        stop_speculating(flow);
    }
    double newly = 0;
    const std::uint32_t before = flow.acked;
    if (setup_.go_back) {
        if (p.cumulative > flow.acked) {
            newly = static_cast<double>(p.cumulative - flow.acked) * setup_.full;
            flow.acked = p.cumulative;
            flow.next_new = std::max(flow.next_new, flow.acked);
        }
        flow.in_flight = static_cast<std::int64_t>(flow.next_new - flow.acked) * setup_.full;
    } else if (flow.lost == 0 && setup_.path_needs.windows == 0) {
        newly = acknowledge_all(flow, p);
    } else {
        const std::uint32_t known = flow.acked > p.sequence ? std::min(64U, flow.acked - p.sequence) : 0;
        if (const std::uint64_t told = known < 64 ? p.selected >> known : 0; told != 0) {
            const std::uint32_t first = p.sequence + known;
            for (std::uint64_t news = told & ~flows_.bits_from(flow, Bits::acknowledged, first); news != 0;
                 news &= news - 1) {
                const std::uint32_t sequence = first + static_cast<std::uint32_t>(std::countr_zero(news));
                flows_.set(flow, Bits::acknowledged, sequence);
                leave_path(id, sequence);
                acknowledge(flow, sequence, newly);
                flow.highest = std::max(flow.highest, sequence + 1);
            }
        }
        while (flow.acked < flow.packets &&
               (flow.acked < p.cumulative || flows_.test(flow, Bits::acknowledged, flow.acked))) {
            if (!flows_.test(flow, Bits::acknowledged, flow.acked)) {
                leave_path(id, flow.acked);
                acknowledge(flow, flow.acked, newly);
            }
            flows_.clear(flow, Bits::acknowledged, flow.acked);
            ++flow.acked;
        }
        flow.highest = std::max(flow.highest, flow.acked);
    }
    if (newly > 0) {
        flow.backoff = 0;
        flow.last_news = clock_.now;
        // Smoothed as in RFC 6298; the first sample stands for itself.
        const std::int64_t delay = clock_.now - p.sent;
        flow.round_trip += flow.round_trip == 0 ? delay : (delay - flow.round_trip) / 8;
        if (flow.acked > before) {
            flow.deadline = clock_.now + timeout_of(flow);
            flow.overtaken = flow.highest;
        }
        Acknowledged ack{clock_.now,
                         clock_.now - p.sent,
                         newly,
                         (p.flags & kMarked) != 0,
                         flow.acked,
                         flow.next_new,
                         static_cast<double>(flow.in_flight)};
        if (setup_.more_to_hear) {
            hear_more(id, p, before, ack);
        }
        transport_.on_ack(flow.congestion, ack);
        adopt(flow);
        if (setup_.more_to_tell) {
            tell_more(id, p, ack);
        }
    } else if (setup_.path_needs.clocked && (p.flags & kRepeated) == 0) {
        clock(id, p.path, 0);  // another, which overtook it, has told of its packet
    }
    if (flow.acked == flow.packets) {
        // What is acknowledged has been received, all of it.
        if (setup_.spec.nic.done_at_sender) {
            finish_part(flow.message);
        }
        retire(id);
        return;
    }
    if (setup_.reorder > 0 && !setup_.go_back && (flow.acked == before || flow.highest > flow.acked)) {
        judge_gaps(id);
    }
    if (setup_.by_time && (p.flags & kRepeated) != 0) {
        marks_[id].allow_more();
    } else if (setup_.by_time && newly > 0) {
        judge_late(id, p.sent);
    }
    list(id);
}

void Nics::hear_more(std::uint32_t id, const Packet& p, std::uint32_t before, Acknowledged& ack) {
    Flow& flow = flows_[id];
    if (setup_.transport.telemetry) {
        ack.links = slab_.telemetry.since_last(id, slab_.telemetry.arriving);
    }
    if (setup_.transport.hears_buffers && setup_.spec.nic.write_rate > 0) {
        ack.held = std::int64_t{p.held} * 1000;
        ack.filled = p.filled;
    }
    // Its packet is the one that it names, or the first that was missing.
    ack.late = setup_.transport.late > 0 &&
               std::max(before, p.sequence > p.cumulative ? p.sequence : 0) + setup_.transport.late < flow.highest;
    if (std::exchange(flow.probed, false)) {
        flow.deadline = clock_.now + timeout_of(flow);
        // Where this answers the probe, what was sent before it and is missing has been lost.
        const std::uint32_t end = p.sent >= probes_[id].at ? probes_[id].end : 0;
        for (std::uint32_t s = flow.acked; s < end; ++s) {
            if (!flows_.test(flow, Bits::acknowledged, s) && !flows_.test(flow, Bits::lost, s)) {
                lose(id, s);
                flow.credits += setup_.transport.credits ? setup_.full : 0;
            }
        }
        ack.in_flight = static_cast<double>(flow.in_flight);
    }
    if (setup_.path_needs.windows > 0) {
        ack.path = numbered_path(p.path);
        ack.under_way = under_way_.of(id);
    }
}

// An acknowledgement that tells of so many packets may let others go on its path.
void Nics::clock(std::uint32_t id, std::uint32_t entropy, std::int64_t packets) {
    const Flow& flow = flows_[id];
    const double room = (flow.window - static_cast<double>(flow.in_flight)) / setup_.full;
    chooser_.clock(id, entropy, packets, static_cast<std::int64_t>(std::clamp(room, 0.0, 1e9)));
}

void Nics::tell_more(std::uint32_t id, const Packet& p, const Acknowledged& ack) {
    if (setup_.transport.timed) {
        arm_congestion(id);
    }
    if (setup_.path_needs.clocked && !ack.late) {
        clock(id, p.path, static_cast<std::int64_t>(ack.bytes) / setup_.full);
    } else if (setup_.path_needs.learns) {
        chooser_.heard(id, p.path, (p.flags & kMarked) == 0 ? PathNews::good : PathNews::marked, clock_.now);
    }
}

// A packet is acknowledged or lost, and under way no longer.
void Nics::leave_path(std::uint32_t id, std::uint32_t sequence) {
    const Flow& flow = flows_[id];
    if (setup_.path_needs.windows > 0 && flow.reduction == kNone && !flows_.test(flow, Bits::lost, sequence)) {
        under_way_.leave(id, sequence);
    }
}

// On one path packets stay in order: what is followed by enough acknowledged packets is lost.
void Nics::judge_gaps(std::uint32_t id) {
    Flow& flow = flows_[id];
    if (flow.highest < flow.acked + setup_.reorder) {
        return;
    }
    const std::uint32_t end = flow.highest - setup_.reorder;
    const std::int64_t before = flow.in_flight;
    for (std::uint32_t s = std::max(flow.scanned, flow.acked); s < end; ++s) {
        if (!flows_.test(flow, Bits::acknowledged, s) && !flows_.test(flow, Bits::lost, s)) {
            lose(id, s);
            flow.credits +=
                setup_.transport.credits ? setup_.full : 0;  // no credit comes back for a packet that never arrives
        }
    }
    flow.scanned = std::max(flow.scanned, end);
    if (flow.in_flight < before) {
        transport_.on_loss(flow.congestion, lost(flow, before - flow.in_flight));
        adopt(flow);
    }
}

// On many paths packets overtake each other, but not by more than a stated time: what was sent so much earlier than a packet that
// has arrived is lost. RACK, RFC 8985, with marks in place of a time for each packet, and a round trip where it begins with a
// fourth of one. `sent`: when the packet left.
void Nics::judge_late(std::uint32_t id, std::int64_t sent) {
    Flow& flow = flows_[id];
    const std::int64_t later = setup_.reorder_time > 0 ? setup_.reorder_time : marks_[id].allowed(flow.round_trip);
    const std::uint32_t end = marks_[id].overtaken(sent - later);
    const std::int64_t before = flow.in_flight;
    for (std::uint32_t from = flow.acked; from < end; from += 64) {
        std::uint64_t missing =
            ~(flows_.bits_from(flow, Bits::acknowledged, from) | flows_.bits_from(flow, Bits::lost, from));
        missing &= end - from < 64 ? (1ULL << (end - from)) - 1 : ~0ULL;
        for (; missing != 0; missing &= missing - 1) {
            lose(id, from + static_cast<std::uint32_t>(std::countr_zero(missing)));
            flow.credits += setup_.transport.credits ? setup_.full : 0;
        }
    }
    if (flow.in_flight < before) {
        transport_.on_loss(flow.congestion, lost(flow, before - flow.in_flight));
        adopt(flow);
    }
}

Lost Nics::lost(const Flow& flow, std::int64_t bytes) const {
    Lost out;
    out.now = clock_.now;
    out.bytes = static_cast<double>(bytes);
    out.cumulative = flow.acked;
    out.next = flow.next_new;
    out.in_flight = static_cast<double>(flow.in_flight + bytes);
    return out;
}

void Nics::lose(std::uint32_t id, std::uint32_t sequence) {
    Flow& flow = flows_[id];
    leave_path(id, sequence);
    flows_.set(flow, Bits::lost, sequence);
    ++flow.lost;
    flow.in_flight -= flows_.size_of(flow, sequence);
}

// A report of loss: the gap of go-back-N, or a trimmed packet.
void Nics::on_report(const Packet& p) {
    const std::uint32_t id = p.flow;
    Flow& flow = flows_[id];
    if (!flow.live || flow.acked == flow.packets) {
        return;
    }
    if (flow.speculates) {
        stop_speculating(flow);
    }
    if (setup_.transport.operation > 0 && (p.flags & kEarly) != 0) {
        flow.last_news = clock_.now;
        flow.backoff = 0;
        early_[id].push_back({clock_.now + wait_of_operation(flow), p.sequence});
        ++flow.records;  // its slot is not another flow's before that
        clock_.schedule(Timer::start, id, early_[id].back().at);
        return;
    }
    std::int64_t before = flow.in_flight;
    if (setup_.go_back) {
        on_acknowledgement(p);
        if (!flow.live || p.cumulative < flow.acked) {
            return;
        }
        before = flow.in_flight;
        flow.next_new = flow.acked;
        flow.in_flight = 0;
    } else if (p.sequence >= flow.acked && !flows_.test(flow, Bits::acknowledged, p.sequence) &&
               !flows_.test(flow, Bits::lost, p.sequence)) {
        lose(id, p.sequence);
        flow.last_news = clock_.now;
        flow.backoff = 0;
    } else {
        return;
    }
    Lost news = lost(flow, before - flow.in_flight);
    news.no_room = setup_.transport.hears_buffers && (p.flags & kNoRoom) != 0;
    news.trimmed = setup_.go_back || news.no_room ? 0 : clock_.now - p.sent;
    news.last_hop = (p.flags & kLastHop) != 0;
    if (setup_.path_needs.learns && !setup_.go_back) {
        chooser_.heard(id, p.path,
                       !news.last_hop             ? PathNews::trimmed
                       : (p.flags & kMarked) != 0 ? PathNews::marked
                                                  : PathNews::trimmed_last,
                       clock_.now);
    }
    transport_.on_loss(flow.congestion, news);
    adopt(flow);
    if (setup_.transport.backlog) {
        request_credit(id);
    }
    list(id);
}

// From the first word of the receiver on, it alone gives credit.
void Nics::stop_speculating(Flow& flow) {
    flow.speculates = false;
    flow.credits = 0;
}

// No packet of its own tells the receiver of what a flow without credit has to send: a request does.
void Nics::request_credit(std::uint32_t id) {
    Flow& flow = flows_[id];
    const std::uint64_t wanted = credit_wanted(flow);
    if (flow.credits > 0 || wanted <= flow.asked) {
        return;
    }
    flow.asked = wanted;
    const std::uint32_t packet = slab_.take();
    Packet& p = slab_[packet];
    p.sent = clock_.now;
    p.selected = wanted;
    p.flow = id;
    p.sequence = p.cumulative = 0;
    p.size = setup_.header;
    p.destination = flow.destination;
    p.path = flow.path.entropy;
    p.ingress = kNone;
    p.kind = PacketKind::request;
    p.flags = 0;
    ++flow.records;
    ports_.send(setup_.base[0] + flow.source, packet);
}

void Nics::on_notification(std::uint32_t id) {
    Flow& flow = flows_[id];
    if (!flow.live) {
        return;
    }
    transport_.on_notification(flow.congestion, clock_.now);
    adopt(flow);
    arm_congestion(id);
}

void Nics::arm_congestion(std::uint32_t id) {
    Flow& flow = flows_[id];
    if (!flow.congestion_armed && flow.congestion.timer != kNoTimer) {
        flow.congestion_armed = true;
        clock_.schedule(Timer::congestion, id, std::max(clock_.now, flow.congestion.timer));
    }
}

void Nics::on_congestion_timer(std::uint32_t id) {
    Flow& flow = flows_[id];
    flow.congestion_armed = false;
    if (!flow.live || flow.acked == flow.packets || flow.congestion.timer == kNoTimer) {
        flows_.free_if_done(id);
        return;
    }
    transport_.on_timer(flow.congestion, clock_.now);
    adopt(flow);
    arm_congestion(id);
}

bool Nics::silent(std::uint32_t id) const {
    const Flow& flow = flows_[id];
    return flow.live && flow.started && flow.acked < flow.packets && clock_.now >= flow.deadline &&
           clock_.now - flow.last_news >= timeout_of(flow);
}

void Nics::on_timeout(std::uint32_t id) {
    Flow& flow = flows_[id];
    flow.timer_armed = false;
    if (!flow.live || !flow.started || flow.acked == flow.packets) {
        flows_.free_if_done(id);
        return;
    }
    if (clock_.now < flow.deadline) {
        flow.timer_armed = true;
        clock_.schedule(Timer::retransmit, id, flow.deadline);
        return;
    }
    // What is under way stands in a queue. Or its acknowledgement waits for packets that a window, smaller by now, holds back: then
    // many timeouts pass, and only sending again brings an answer.
    const bool held_back = setup_.tell_every > 1 && clock_.now - flow.last_news > timeout_of(flow) << kManyTimeouts;
    if (setup_.nothing_lost && flow.in_flight > 0 && flow.reduction == kNone && !held_back) {
        touch_deadline(id);
        return;
    }
    const bool quiet = clock_.now - flow.last_news >= timeout_of(flow);
    if (flow.in_flight > 0 && probes(flow)) {
        if (quiet) {
            probe(id);
        } else {
            flow.deadline = flow.last_news + timeout_of(flow);
            flow.timer_armed = true;
            clock_.schedule(Timer::retransmit, id, flow.deadline);
        }
        return;
    }
    const bool waits = flow.in_flight > 0 || (setup_.transport.credits && flow.credits <= 0) ||
                       ports_[setup_.base[0] + flow.source].down;
    if (waits && quiet && flow.backoff < std::numeric_limits<std::uint8_t>::max()) {
        ++flow.backoff;
    }
    if (waits && quiet && flow.backoff > setup_.spec.transport.retries &&
        clock_.now - flow.last_news > setup_.patience) {
        messages_.fail(flow.message, std::to_string(setup_.spec.transport.retries) +
                                         " timeouts in a row without an acknowledgement, at t = " +
                                         std::to_string(static_cast<double>(clock_.now) * 1e-12) + " s");
    }
    if (const std::int64_t before = flow.in_flight; before > 0) {
        if (flow.capacity == 0) {
            flow.next_new = flow.acked;
            flow.in_flight = 0;
        } else {
            // In silence all is lost; else what others had overtaken when the deadline was set.
            const std::uint32_t end = quiet ? flow.next_new : flow.overtaken;
            for (std::uint32_t s = flow.acked; s < end; ++s) {
                if (!flows_.test(flow, Bits::acknowledged, s) && !flows_.test(flow, Bits::lost, s)) {
                    lose(id, s);
                    flow.credits += setup_.transport.credits ? setup_.full : 0;
                }
            }
        }
        const bool controlled = flow.reduction == kNone;
        flows_.counts.timeouts += quiet ? 1 : 0;
        if (flows_.log && quiet) {
            ++flows_.log->of(id).timeouts;
        }
        if (setup_.path_needs.learns && flow.in_flight < before) {
            chooser_.heard(id, 0, PathNews::timed_out, clock_.now);
        }
        if (quiet && controlled) {
            transport_.on_timeout(flow.congestion, lost(flow, before - flow.in_flight));
        } else if (flow.lost > 0 && controlled) {
            transport_.on_loss(flow.congestion, lost(flow, before - flow.in_flight));
        }
        adopt(flow);
    }
    if (setup_.transport.credits && quiet && flow.credits <= 0) {
        flow.credits = setup_.full;  // the credit may have been what was lost
    }
    touch_deadline(id);
    list(id);
}

// Credit packets tell of all that was ever given: one makes up for those lost before it.
void Nics::on_credit(const Packet& p) {
    Flow& flow = flows_[p.flow];
    if (flow.speculates) {
        stop_speculating(flow);
    }
    if (p.selected > flow.credited) {
        flow.credits += static_cast<std::int64_t>(p.selected - flow.credited);
        flow.credited = p.selected;
        list(p.flow);
    }
}

}  // namespace orrery::network::packet
