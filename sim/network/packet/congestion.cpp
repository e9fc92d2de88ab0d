#include "sim/network/packet/congestion.hpp"

#include "sim/base/math.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::packet {

namespace {

std::int64_t to_ps(double seconds) {
    return std::llround(seconds * 1e12);
}

double clamp_window(const CongestionSettings& s, double window) {
    return std::clamp(window, s.packet, s.max_window);
}

}  // namespace

void Dcqcn::start(const CongestionSettings& s) {
    rate = target = s.line_rate;
}

void Dcqcn::increase(const CongestionSettings& s) {
    const std::uint32_t most = std::max(byte_steps, timer_steps);
    const std::uint32_t least = std::min(byte_steps, timer_steps);
    const auto recovery = static_cast<std::uint32_t>(s.spec.dcqcn_recovery);
    if (least > recovery) {
        target += s.spec.dcqcn_hyper * (least - recovery);
    } else if (most > recovery) {
        target += s.spec.dcqcn_increase;
    }
    target = std::min(target, s.line_rate);
    rate = std::min((target + rate) / 2, s.line_rate);
}

void Dcqcn::on_sent(const CongestionSettings& s, double bytes) {
    if (alpha_due == kNoTimer) {
        return;  // never notified: at line rate
    }
    byte_count += bytes;
    if (byte_count >= s.spec.dcqcn_byte_counter) {
        byte_count -= s.spec.dcqcn_byte_counter;
        ++byte_steps;
        increase(s);
    }
}

void Dcqcn::on_notification(const CongestionSettings& s, std::int64_t now) {
    target = rate;
    rate = std::max(rate * (1 - alpha / 2), s.spec.dcqcn_min_rate);
    alpha = (1 - s.spec.dcqcn_g) * alpha + s.spec.dcqcn_g;
    byte_steps = timer_steps = 0;
    byte_count = 0;
    alpha_due = now + to_ps(s.spec.dcqcn_alpha_timer);
    rate_due = now + to_ps(s.spec.dcqcn_rate_timer);
}

std::int64_t Dcqcn::on_timer(const CongestionSettings& s, std::int64_t now) {
    while (alpha_due <= now) {
        alpha *= 1 - s.spec.dcqcn_g;
        alpha_due += to_ps(s.spec.dcqcn_alpha_timer);
    }
    while (rate_due <= now) {
        ++timer_steps;
        rate_due += to_ps(s.spec.dcqcn_rate_timer);
        increase(s);
    }
    return std::min(alpha_due, rate_due);
}

void Swift::start(const CongestionSettings& s) {
    window = s.max_window;
}

double Swift::target(const CongestionSettings& s) const {
    const double base = s.base_rtt + (s.spec.swift_target > 0 ? s.spec.swift_target * 1e12 : s.base_rtt / 2);
    // Flow scaling: many flows on a link have small windows and are granted more queue, down from its full range at a
    // window of one packet to nothing at a hundred.
    const double scaled = 1 / std::sqrt(std::max(1.0, window / s.packet));
    return base + s.spec.swift_flow_scaling * 1e12 * std::max(0.0, (scaled - 0.1) / 0.9);
}

void Swift::on_ack(const CongestionSettings& s, const Acknowledged& ack) {
    delay = ack.delay;
    const double goal = target(s);
    const auto late = static_cast<double>(ack.delay);
    if (late < goal) {
        window += s.spec.swift_increase * s.packet * ack.bytes / std::max(window, s.packet);
    } else if (ack.now - last_decrease >= ack.delay) {
        window *= std::max(1 - s.spec.swift_beta * (late - goal) / late, 1 - s.spec.swift_max_decrease);
        last_decrease = ack.now;
    }
    window = clamp_window(s, window);
}

void Swift::on_loss(const CongestionSettings& s, std::int64_t now, std::uint32_t, std::uint32_t) {
    if (now - last_decrease >= std::max(delay, static_cast<std::int64_t>(s.base_rtt))) {
        window = clamp_window(s, window * (1 - s.spec.swift_max_decrease));
        last_decrease = now;
    }
}

void Swift::on_timeout(const CongestionSettings& s, std::int64_t now) {
    window = s.packet;
    last_decrease = now;
}

void Multipath::start(const CongestionSettings& s) {
    window = s.max_window;
}

void Multipath::on_ack(const CongestionSettings& s, const Acknowledged& ack) {
    const double goal = s.spec.multipath_target > 0 ? s.spec.multipath_target * 1e12 : 0.75 * s.base_rtt;
    const double queueing = std::max(0.0, static_cast<double>(ack.delay) - s.base_rtt);
    mean_delay += (queueing - mean_delay) / 16;
    const double share = s.packet * ack.bytes / window;
    if (!ack.marked) {
        window += queueing < goal ? s.spec.multipath_increase * share * (goal - queueing) / goal
                                  : s.spec.multipath_fair * share;
    } else if (queueing >= goal && mean_delay > goal && static_cast<double>(ack.now - last_decrease) >= s.base_rtt) {
        window *= std::max(0.5, 1 - s.spec.multipath_decrease * (mean_delay - goal) / mean_delay);
        last_decrease = ack.now;
    }
    window = clamp_window(s, window);
}

void Multipath::on_loss(const CongestionSettings& s, std::int64_t now, std::uint32_t cumulative, std::uint32_t next) {
    // A loss means that some port was full: halve, once for what was under way.
    if (cumulative >= recover || static_cast<double>(now - last_decrease) >= 2 * s.base_rtt) {
        window = clamp_window(s, window / 2);
        recover = next;
        last_decrease = now;
    }
}

void Multipath::on_timeout(const CongestionSettings& s, std::int64_t now) {
    window = clamp_window(s, window / 4);
    last_decrease = now;
}

void Dctcp::start(const CongestionSettings& s) {
    window = clamp_window(s, s.spec.initial_window * s.packet);
}

void Dctcp::on_ack(const CongestionSettings& s, const Acknowledged& ack) {
    acked += ack.bytes;
    marked += ack.marked ? ack.bytes : 0;
    if (window < threshold && !ack.marked) {
        window += ack.bytes;
    } else {
        threshold = std::min(threshold, window);
        window += s.packet * ack.bytes / window;
    }
    if (ack.cumulative >= window_end && acked > 0) {
        alpha = (1 - s.spec.dctcp_g) * alpha + s.spec.dctcp_g * marked / acked;
        if (marked > 0) {
            window *= 1 - alpha / 2;
            threshold = window;
        }
        acked = marked = 0;
        window_end = ack.next;
    }
    window = clamp_window(s, window);
}

void Dctcp::on_loss(const CongestionSettings& s, std::int64_t, std::uint32_t cumulative, std::uint32_t next) {
    if (cumulative >= recover) {
        window = threshold = clamp_window(s, window / 2);
        recover = next;
    }
}

void Dctcp::on_timeout(const CongestionSettings& s, std::int64_t) {
    threshold = std::max(window / 2, 2 * s.packet);
    window = s.packet;
}

void Cubic::start(const CongestionSettings& s) {
    window = clamp_window(s, s.spec.initial_window * s.packet);
}

void Cubic::on_ack(const CongestionSettings& s, const Acknowledged& ack) {
    if (window < threshold) {
        window = clamp_window(s, window + ack.bytes);
        return;
    }
    const double segments = window / s.packet;
    if (epoch < 0) {
        epoch = ack.now;
        start_window = friendly = segments;
        last_max = std::max(last_max, segments);
        k = pow_pinned((last_max - segments) / s.spec.cubic_c, 1.0 / 3);
    }
    const double arrived = ack.bytes / s.packet;
    // RFC 9438, 4.2 and 4.3: where the cubic will be a round trip from now, and at least what Reno would have.
    const double t = static_cast<double>(ack.now - epoch + ack.delay) * 1e-12 - k;
    const double goal = std::clamp(s.spec.cubic_c * t * t * t + last_max, segments, 1.5 * segments);
    const double alpha = 3 * (1 - s.spec.cubic_beta) / (1 + s.spec.cubic_beta);
    friendly += alpha * arrived / segments;
    const double next = segments + arrived * (goal - segments) / segments;
    window = clamp_window(s, std::max(next, friendly) * s.packet);
}

void Cubic::decrease(const CongestionSettings& s) {
    const double segments = window / s.packet;
    // Fast convergence, RFC 9438, 4.7.
    last_max = segments < last_max ? segments * (1 + s.spec.cubic_beta) / 2 : segments;
    threshold = std::max(window * s.spec.cubic_beta, 2 * s.packet);
    epoch = -1;
}

void Cubic::on_loss(const CongestionSettings& s, std::int64_t, std::uint32_t cumulative, std::uint32_t next) {
    if (cumulative >= recover) {
        decrease(s);
        window = clamp_window(s, threshold);
        recover = next;
    }
}

void Cubic::on_timeout(const CongestionSettings& s, std::int64_t) {
    decrease(s);
    window = s.packet;
}

void forget_sequences(CongestionControl& congestion) {
    std::visit(
        [](auto& l) {
            if constexpr (requires { l.recover; }) {
                l.recover = 0;
            }
            if constexpr (requires { l.window_end; }) {
                l.window_end = 0;
            }
        },
        congestion);
}

CongestionControl make_congestion_control(const CongestionSettings& s) {
    const auto started = [&](auto congestion) -> CongestionControl {
        congestion.start(s);
        return congestion;
    };
    FixedWindow fixed;
    switch (s.spec.kind) {
        case TransportKind::ideal:
        case TransportKind::receiver_driven:
            return fixed;
        case TransportKind::window:
            fixed.window = s.max_window;
            return fixed;
        case TransportKind::roce:
            return s.spec.dcqcn ? started(Dcqcn()) : CongestionControl(fixed);
        case TransportKind::swift:
            return started(Swift());
        case TransportKind::multipath:
            return started(Multipath());
        case TransportKind::dctcp:
            return started(Dctcp());
        case TransportKind::cubic:
            return started(Cubic());
    }
    return fixed;
}

}  // namespace orrery::packet
