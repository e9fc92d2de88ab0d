// What a sender makes of acknowledgements, reports of loss, notifications and timeouts.

#include "sim/network/packet/network.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::packet {

namespace {
constexpr std::int64_t kLongest = 10'000'000'000'000'000;  // ps: no timeout is longer than 10,000 s
}  // namespace

// Three smoothed round trips, so that a long queue is not mistaken for a loss; never below the set timeout.
std::int64_t Network::timeout_of(const Flow& flow) const {
    return std::min(kLongest, std::max(timeout_, 3 * flow.round_trip));
}

void Network::touch_deadline(std::uint32_t id) {
    Flow& flow = flows_[id];
    flow.deadline = now_ + (timeout_of(flow) << std::min<unsigned>(flow.backoff, 6));
    flow.overtaken = flow.highest;
    if (!flow.timer_armed) {
        flow.timer_armed = true;
        schedule(Timer::retransmit, id, flow.deadline);
    }
}

// One packet is known to have arrived: it is no longer in flight, nor to be sent again.
void Network::acknowledge(Flow& flow, std::uint32_t sequence, double& newly) {
    const std::uint32_t size = size_of(flow, sequence);
    newly += size;
    if (test(flow, Bits::lost, sequence)) {
        clear(flow, Bits::lost, sequence);
        --flow.lost;
    } else {
        flow.in_flight -= size;
    }
}

void Network::on_acknowledgement(const Packet& p) {
    const std::uint32_t id = p.flow;
    Flow& flow = flows_[id];
    if (!flow.live || flow.acked == flow.packets) {
        return;
    }
    double newly = 0;
    const std::uint32_t before = flow.acked;
    if (go_back_) {
        if (p.cumulative > flow.acked) {
            newly = static_cast<double>(p.cumulative - flow.acked) * full_;
            flow.acked = p.cumulative;
            flow.next_new = std::max(flow.next_new, flow.acked);
        }
        flow.in_flight = static_cast<std::int64_t>(flow.next_new - flow.acked) * full_;
    } else {
        const std::uint32_t known = flow.acked > p.sequence ? std::min(64U, flow.acked - p.sequence) : 0;
        if (const std::uint64_t told = known < 64 ? p.selected >> known : 0; told != 0) {
            const std::uint32_t first = p.sequence + known;
            for (std::uint64_t news = told & ~bits_from(flow, Bits::acknowledged, first); news != 0; news &= news - 1) {
                const std::uint32_t sequence = first + static_cast<std::uint32_t>(std::countr_zero(news));
                set(flow, Bits::acknowledged, sequence);
                acknowledge(flow, sequence, newly);
                flow.highest = std::max(flow.highest, sequence + 1);
            }
        }
        while (flow.acked < flow.packets && (flow.acked < p.cumulative || test(flow, Bits::acknowledged, flow.acked))) {
            if (!test(flow, Bits::acknowledged, flow.acked)) {
                acknowledge(flow, flow.acked, newly);
            }
            clear(flow, Bits::acknowledged, flow.acked);
            ++flow.acked;
        }
        flow.highest = std::max(flow.highest, flow.acked);
    }
    if (newly > 0) {
        flow.backoff = 0;
        flow.last_news = now_;
        // Smoothed as in RFC 6298; the first sample stands for itself.
        const std::int64_t delay = now_ - p.sent;
        flow.round_trip += flow.round_trip == 0 ? delay : (delay - flow.round_trip) / 8;
        if (flow.acked > before) {
            flow.deadline = now_ + timeout_of(flow);
            flow.overtaken = flow.highest;
        }
        const Acknowledged ack{now_, now_ - p.sent, newly, (p.flags & kMarked) != 0, flow.acked, flow.next_new};
        transport_->on_ack(flow.congestion, ack);
        adopt(id);
        if (path_needs_.learns && (p.flags & kMarked) == 0) {
            paths_->heard_unmarked(id, p.path);
        }
    }
    if (flow.acked == flow.packets) {
        if (spec_.nic.done_at_sender) {
            finish_part(flow.message);
        }
        if (flow.received == flow.packets) {
            retire(id);
        }
        return;
    }
    if (reorder_ > 0 && !go_back_ && (flow.acked == before || flow.highest > flow.acked)) {
        judge_gaps(id);
    }
    list(id);
}

// On one path packets stay in order: what is followed by enough acknowledged packets is lost.
void Network::judge_gaps(std::uint32_t id) {
    Flow& flow = flows_[id];
    if (flow.highest < flow.acked + reorder_) {
        return;
    }
    const std::uint32_t end = flow.highest - reorder_;
    std::uint32_t found = 0;
    for (std::uint32_t s = std::max(flow.scanned, flow.acked); s < end; ++s) {
        if (!test(flow, Bits::acknowledged, s) && !test(flow, Bits::lost, s)) {
            lose(flow, s);
            flow.credits += credited_ ? 1 : 0;  // no credit comes back for a packet that never arrives
            ++found;
        }
    }
    flow.scanned = std::max(flow.scanned, end);
    if (found > 0) {
        transport_->on_loss(flow.congestion, now_, flow.acked, flow.next_new);
        adopt(id);
    }
}

void Network::lose(Flow& flow, std::uint32_t sequence) {
    set(flow, Bits::lost, sequence);
    ++flow.lost;
    flow.in_flight -= size_of(flow, sequence);
}

// A report of loss: the gap of go-back-N, or a trimmed packet.
void Network::on_report(const Packet& p) {
    const std::uint32_t id = p.flow;
    Flow& flow = flows_[id];
    if (!flow.live || flow.acked == flow.packets) {
        return;
    }
    if (go_back_) {
        on_acknowledgement(p);
        if (!flow.live || p.cumulative < flow.acked) {
            return;
        }
        flow.next_new = flow.acked;
        flow.in_flight = 0;
    } else if (p.sequence >= flow.acked && !test(flow, Bits::acknowledged, p.sequence) &&
               !test(flow, Bits::lost, p.sequence)) {
        lose(flow, p.sequence);
        flow.last_news = now_;
        flow.backoff = 0;
    } else {
        return;
    }
    transport_->on_loss(flow.congestion, now_, flow.acked, flow.next_new);
    adopt(id);
    list(id);
}

void Network::on_notification(std::uint32_t id) {
    Flow& flow = flows_[id];
    if (!flow.live) {
        return;
    }
    transport_->on_notification(flow.congestion, now_);
    adopt(id);
    arm_congestion(id);
}

void Network::arm_congestion(std::uint32_t id) {
    Flow& flow = flows_[id];
    if (!flow.congestion_armed && flow.congestion.timer != kNoTimer) {
        flow.congestion_armed = true;
        schedule(Timer::congestion, id, std::max(now_, flow.congestion.timer));
    }
}

void Network::on_congestion_timer(std::uint32_t id) {
    Flow& flow = flows_[id];
    flow.congestion_armed = false;
    if (!flow.live || flow.acked == flow.packets || flow.congestion.timer == kNoTimer) {
        return;
    }
    transport_->on_timer(flow.congestion, now_);
    adopt(id);
    arm_congestion(id);
}

void Network::on_timeout(std::uint32_t id) {
    Flow& flow = flows_[id];
    flow.timer_armed = false;
    if (!flow.live || !flow.started || flow.acked == flow.packets) {
        return;
    }
    if (now_ < flow.deadline) {
        flow.timer_armed = true;
        schedule(Timer::retransmit, id, flow.deadline);
        return;
    }
    const bool silent = now_ - flow.last_news >= timeout_of(flow);
    const bool waits = flow.in_flight > 0 || (credited_ && flow.credits == 0) || ports_[base_[0] + flow.source].down;
    if (silent && spec_.queues.pfc && now_ - deadlock_checked_ >= timeout_) {
        deadlock_checked_ = now_;
        check_deadlock();
    }
    if (waits && silent && ++flow.backoff > spec_.transport.retries) {
        fail(flow);
    }
    if (flow.in_flight > 0) {
        if (flow.capacity == 0) {
            flow.next_new = flow.acked;
            flow.in_flight = 0;
        } else {
            // In silence all is lost; else what others had overtaken when the deadline was set.
            const std::uint32_t end = silent ? flow.next_new : flow.overtaken;
            for (std::uint32_t s = flow.acked; s < end; ++s) {
                if (!test(flow, Bits::acknowledged, s) && !test(flow, Bits::lost, s)) {
                    lose(flow, s);
                    flow.credits += credited_ ? 1 : 0;
                }
            }
        }
        const bool controlled = flow.reduction == kNone;
        timeouts_ += silent ? 1 : 0;
        if (silent && controlled) {
            transport_->on_timeout(flow.congestion, now_);
        } else if (flow.lost > 0 && controlled) {
            transport_->on_loss(flow.congestion, now_, flow.acked, flow.next_new);
        }
        adopt(id);
    }
    if (credited_ && silent && flow.credits == 0) {
        flow.credits = 1;  // the credit may have been what was lost
    }
    touch_deadline(id);
    list(id);
}

void Network::fail(const Flow& flow) const {
    const Message& message = messages_[flow.message];
    throw InfeasibleError("the message of " + std::to_string(message.bytes) + " bytes from GPU " +
                          std::to_string(message.from.value()) + " to GPU " + std::to_string(message.to.value()) +
                          " can never finish: " + std::to_string(spec_.transport.retries) +
                          " timeouts in a row without an acknowledgement, at t = " +
                          std::to_string(static_cast<double>(now_) * 1e-12) + " s");
}

}  // namespace orrery::packet
