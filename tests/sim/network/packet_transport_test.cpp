#include "sim/base/math.hpp"
#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using packet::Acknowledged;
using packet::CongestionSettings;
using packet::CongestionState;
using packet::Network;

namespace {

CongestionSettings settings() {
    CongestionSettings s;
    s.packet = 4160;
    s.line_rate = 50e9;
    s.base_rtt = 5e6;
    s.max_window = 1000 * 4160;
    return s;
}

/// A transport with one flow.
struct OneFlow : CongestionState {
    std::unique_ptr<packet::Transport> transport;

    explicit OneFlow(const std::string& text, const CongestionSettings& run = settings())
        : transport(test::transport(text).policy.make()) {
        transport->begin(run);
        transport->start(*this);
    }
    void on_ack(const Acknowledged& ack) { transport->on_ack(*this, ack); }
    void on_loss(std::int64_t now, std::uint32_t cumulative, std::uint32_t next) {
        transport->on_loss(*this, {now, 4160, cumulative, next});
    }
};

Acknowledged ack(std::int64_t now, std::int64_t delay, bool marked, std::uint32_t cumulative = 0,
                 std::uint32_t next = 0) {
    return {now, delay, 4160, marked, cumulative, next};
}

// An incast into host 0 of hosts on its leaf and others.
struct Incast {
    PacketStatistics statistics;
    std::int64_t last = 0;
};
Incast incast(const PacketSpec& spec, std::uint32_t senders, std::uint64_t bytes) {
    const Fabric fabric(test::hosts(32, 8, 8, 50e9, 500e-9));
    Network network(fabric, spec, 1);
    for (std::uint32_t i = 1; i <= senders; ++i) {
        network.send({GpuId(i), GpuId(0), bytes, 0, i - 1});
    }
    const auto done = test::finish(network, senders);
    CHECK(network.conserved());
    return {network.statistics(), *std::max_element(done.begin(), done.end())};
}

// What the receiver's link needs for `senders` messages of whole packets.
double bound_ps(std::uint32_t senders, std::uint64_t packets) {
    return static_cast<double>(senders * packets) * 4160 * 20;
}

}  // namespace

TEST_CASE(
    "DCQCN: a notification cuts the rate by alpha / 2, alpha follows its gain, and recovery halves the distance") {
    OneFlow flow("{kind: roce}");
    CHECK(flow.rate == 50e9);
    CHECK(flow.timer == packet::kNoTimer);
    double alpha = 1;
    double rate = 50e9;
    double target = 50e9;
    const auto notify = [&](std::int64_t now) {
        flow.transport->on_notification(flow, now);
        target = rate;
        rate *= 1 - alpha / 2;
        alpha = (1 - 1.0 / 256) * alpha + 1.0 / 256;
        CHECK(flow.rate == doctest::Approx(rate).epsilon(1e-12));
        CHECK(flow.timer == now + 55'000'000);
    };
    notify(0);
    notify(50'000'000);
    // Five timer periods of fast recovery, then additive increase; alpha decays at each of its own periods.
    for (int step = 1; step <= 9; ++step) {
        flow.transport->on_timer(flow, 50'000'000 + step * 55'000'000);
        CHECK(flow.timer == 50'000'000 + (step + 1) * 55'000'000);
        alpha *= 1 - 1.0 / 256;
        if (step > 5) {
            target += 5e6;
        }
        rate = (target + rate) / 2;
        CHECK(flow.rate == doctest::Approx(rate).epsilon(1e-12));
    }
    alpha *= pow_pinned(255.0 / 256, 8);  // eight more of its periods are over
    notify(1'000'000'000);
    // The byte counter counts like the timer; both beyond five steps make the increase hyper.
    for (int step = 1; step <= 7; ++step) {
        flow.transport->on_sent(flow, 10e6);
        rate = ((target += step > 5 ? 5e6 : 0) + rate) / 2;
        CHECK(flow.rate == doctest::Approx(rate).epsilon(1e-12));
    }
    for (int step = 1; step <= 6; ++step) {
        flow.transport->on_timer(flow, 1'000'000'000 + step * 55'000'000);
        target += step > 5 ? 50e6 : 5e6;
        rate = (std::min(target, 50e9) + rate) / 2;
        CHECK(flow.rate == doctest::Approx(rate).epsilon(1e-12));
    }
}

TEST_CASE("DCQCN: preset 400g: alpha decays each microsecond, and what a flow recovers to falls once") {
    OneFlow flow("{kind: roce, dcqcn_preset: 400g}");
    flow.transport->on_notification(flow, 0);
    CHECK(flow.rate == 25e9);
    CHECK(flow.timer == 300'000'000);
    flow.transport->on_notification(flow, 100'000'000);
    double rate = 25e9 * (1 - pow_pinned(1019.0 / 1024, 99) / 2);  // alpha after 99 microseconds
    CHECK(flow.rate == doctest::Approx(rate).epsilon(1e-12));
    // One step of recovery, by bytes, back towards the 400 Gb/s of the first notification; then additive ones; where the timer
    // has gone as far, hyper ones.
    double target = 50e9;
    for (int step = 1; step <= 4; ++step) {
        flow.transport->on_sent(flow, 32767);
        target = std::min(50e9, target + (step == 1 ? 0 : 5e6 / 8));
        rate = (target + rate) / 2;
        CHECK(flow.rate == doctest::Approx(rate).epsilon(1e-12));
    }
    flow.transport->on_notification(flow, 101'000'000);  // the first after an increase
    target = rate;
    rate = flow.rate;
    for (int step = 1; step <= 3; ++step) {
        flow.transport->on_timer(flow, 101'000'000 + step * 300'000'000LL);
        target += step == 1 ? 0 : 5e6 / 8;
        rate = (target + rate) / 2;
        CHECK(flow.rate == doctest::Approx(rate).epsilon(1e-12));
    }
    // What is given beside the preset holds.
    OneFlow own("{kind: roce, dcqcn_rate_timer: 50 us, dcqcn_preset: 400g}");
    own.transport->on_notification(own, 0);
    CHECK(own.timer == 50'000'000);
}

TEST_CASE("Swift: additive below its target, in proportion to the excess above it, once a round trip") {
    OneFlow flow("{kind: swift}");  // its target: 7.5 us
    flow.window = 100 * 4160;
    flow.on_ack(ack(10'000'000, 7'499'999, false));
    CHECK(flow.window == doctest::Approx(100 * 4160 + 4160 / 100.0));
    const double before = flow.window;
    flow.on_ack(ack(20'000'000, 10'000'000, false));
    CHECK(flow.window == doctest::Approx(before * (1 - 0.8 * 2.5 / 10)));
    const double after = flow.window;
    flow.on_ack(ack(29'999'999, 10'000'000, false));  // within a round trip: no second decrease
    CHECK(flow.window == after);
    flow.on_ack(ack(30'000'000, 100'000'000, false));
    CHECK(flow.window == after);  // a round trip is now 100 us
    flow.on_ack(ack(120'000'000, 100'000'000, false));
    CHECK(flow.window == doctest::Approx(after * 0.5));  // bounded by the largest decrease
}

TEST_CASE("DCTCP: alpha is the smoothed share of marked bytes a window, the window shrinks by alpha / 2") {
    OneFlow flow("{kind: dctcp}");
    CHECK(flow.window == 10 * 4160);
    flow.on_ack(ack(0, 0, false, 1, 1));  // slow start, and the end of a window without marks
    CHECK(flow.window == 11 * 4160);
    double alpha = 1 - 1.0 / 16;
    flow.on_loss(0, 1, 20);  // congestion avoidance from here
    CHECK(flow.window == 5.5 * 4160);
    double window = flow.window = 20 * 4160;
    flow.on_ack(ack(0, 0, false, 1, 20));  // a window that ends at packet 20
    alpha *= 1 - 1.0 / 16;
    window += 4160.0 * 4160 / window;
    for (std::uint32_t i = 1; i <= 19; ++i) {
        window += 4160.0 * 4160 / window;
        flow.on_ack(ack(0, 0, i <= 5, i + 1, 40));
    }
    alpha = (1 - 1.0 / 16) * alpha + 1.0 / 16 * 5 / 19;
    CHECK(flow.window == doctest::Approx(window * (1 - alpha / 2)).epsilon(1e-12));
}

TEST_CASE("CUBIC: after a loss the window follows C (t - K)^3 + W_max") {
    CongestionSettings s = settings();
    s.max_window = 1e6 * 4160;
    OneFlow flow("{kind: cubic}", s);
    flow.window = 1000 * 4160;
    flow.on_loss(0, 1, 2000);
    CHECK(flow.window == doctest::Approx(700 * 4160));
    flow.on_loss(0, 1999, 2500);  // the same window: once
    CHECK(flow.window == doctest::Approx(700 * 4160));
    const std::int64_t rtt = 50'000'000'000;  // 50 ms
    const auto follow = [&](std::int64_t from, double w_max, double k) {
        // Round trips of 700 to 1,000 acknowledgements, until K has passed.
        for (std::int64_t now = 0; static_cast<double>(now) < (k - 0.1) * 1e12; now += rtt) {
            const int acks = static_cast<int>(flow.window / 4160);
            for (int i = 0; i < acks; ++i) {
                flow.on_ack(ack(from + now + i * (rtt / acks), rtt, false, 3000, 4000));
            }
            const double t = static_cast<double>(now + rtt) * 1e-12 + 0.05 - k;
            if (now > 1'000'000'000'000) {
                CHECK(flow.window / 4160 == doctest::Approx(0.4 * t * t * t + w_max).epsilon(0.01));
            }
        }
    };
    follow(0, 1000, pow_pinned(300 / 0.4, 1.0 / 3));
    // Fast convergence: a loss below the last maximum remembers less.
    flow.window = 900 * 4160;
    flow.on_loss(0, 5000, 6000);
    CHECK(flow.window == doctest::Approx(630 * 4160));
    follow(20'000'000'000'000, 765, pow_pinned(135 / 0.4, 1.0 / 3));
}

TEST_CASE("multipath: four quadrants of delay and marks") {
    const double goal = 0.75 * 5e6;
    const auto after = [](std::int64_t now, std::int64_t delay, bool marked) {
        OneFlow flow("{kind: multipath}");
        flow.window = 100 * 4160;
        flow.on_ack(ack(now, delay, marked));
        return flow.window;
    };
    // Early, unmarked: up to four packets per round trip. Late, unmarked: half a packet. Early, marked: wait and see.
    CHECK(after(0, 5'000'000, false) == doctest::Approx(100 * 4160 + 4 * 41.6));
    CHECK(after(0, 10'000'000, false) == doctest::Approx(100 * 4160 + 0.5 * 41.6));
    CHECK(after(0, 6'000'000, true) == 100 * 4160);
    // Late, marked: by the excess of the mean, which is that of 15 us before long; and once a round trip.
    OneFlow flow("{kind: multipath}");
    for (int i = 0; i < 1000; ++i) {
        flow.window = 100 * 4160;
        flow.on_ack(ack(0, 15'000'000, false));
    }
    flow.window = 100 * 4160;
    flow.on_ack(ack(100'000'000, 15'000'000, true));
    const double less = 100 * 4160 * (1 - 0.8 * (10e6 - goal) / 10e6);
    CHECK(flow.window == doctest::Approx(less));
    flow.on_ack(ack(104'999'999, 15'000'000, true));
    CHECK(flow.window == doctest::Approx(less));
}

TEST_CASE("every transport brings an incast through a small queue within a third of the link's time") {
    for (const auto* row : packet::transport_table()) {
        const std::string kind = row->name;
        if (kind == "ideal") {
            continue;
        }
        CAPTURE(kind);
        PacketSpec spec;
        spec.paths.policy.choose("ecmp");
        spec.transport.policy.choose(kind);
        spec.transport.recovery = Recovery::selective;
        spec.transport.retries = 100;
        spec.queues.size = 400e3;
        spec.queues.trim = spec.transport.needs().credits;  // a lost packet is a lost credit
        spec.queues.pfc = kind == "timely";                 // made for links that do not drop: losses say nothing to it
        spec.queues.mark_low = 50e3;
        spec.queues.mark_high = 200e3;
        if (kind == "infiniband") {  // made for links with credits, which hold its connections in place of a window
            spec.queues.size = 0;
            spec.queues.credits = 100e3;
        }
        const Incast out = incast(spec, 8, 1024 * 4096);
        CHECK(static_cast<double>(out.last) >= bound_ps(8, 1024));
        // A fixed window and plain RoCE do not adapt and lose much; TIMELY begins far above its share; InfiniBand's index rises by
        // each mark of a full queue.
        const bool adapts = kind != "window" && kind != "roce" && kind != "timely" && kind != "infiniband";
        CHECK(static_cast<double>(out.last) < (adapts ? 1.34 : 3) * bound_ps(8, 1024));
    }
}

TEST_CASE("PFC pauses instead of dropping, and a headroom that is too small drops") {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.transport = test::transport("{kind: roce, dcqcn: false}");
    spec.queues.pfc = true;
    spec.transport.timeout = 0.1;
    const Incast out = incast(spec, 24, 256 * 4096);
    CHECK(out.statistics.drops == 0);
    CHECK(out.statistics.retransmissions == 0);
    CHECK(out.statistics.pause_s > 0);
    CHECK(static_cast<double>(out.last) < 1.01 * bound_ps(24, 256));
    spec.queues.headroom = 1;
    spec.transport.timeout = 0;
    CHECK(incast(spec, 24, 256 * 4096).statistics.drops > 0);
}

TEST_CASE("trimming tells the sender at once: no timeout is needed") {
    PacketSpec spec;
    spec.transport.policy.choose("receiver-driven");
    spec.queues.size = 8 * 4160;
    spec.queues.trim = true;
    const Incast out = incast(spec, 16, 128 * 4096);
    CHECK(out.statistics.trims > 0);
    CHECK(out.statistics.drops == 0);
    CHECK(out.statistics.timeouts == 0);
    CHECK(out.statistics.retransmissions == out.statistics.trims);
    CHECK(static_cast<double>(out.last) < 1.1 * bound_ps(16, 128));
}

TEST_CASE("shared memory with dynamic thresholds: one busy port may take alpha / (1 + alpha) of it") {
    for (const double alpha : {0.5, 1.0, 3.0}) {
        PacketSpec spec;
        spec.paths.policy.choose("ecmp");
        spec.transport.policy.choose("window");
        spec.transport.window = 1e6;
        spec.queues.shared = 400 * 4160;
        spec.queues.alpha = alpha;
        const Incast out = incast(spec, 7, 512 * 4096);
        CHECK(out.statistics.drops > 0);
        CHECK(out.statistics.max_queue_bytes == doctest::Approx(400 * 4160 * alpha / (1 + alpha)).epsilon(0.02));
    }
}

TEST_CASE("bit errors are repaired, and more of them than retries allow name the flow") {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.bit_error_rate = 1e-6;  // 3.3 % of full packets a hop
    const Incast out = incast(spec, 1, 1024 * 4096);
    CHECK(out.statistics.corrupted > 40);
    CHECK(out.statistics.retransmissions >= 40);
    spec.bit_error_rate = 1e-3;
    spec.transport.retries = 3;
    CHECK_THROWS_WITH_AS(incast(spec, 1, 1024 * 4096), doctest::Contains("from GPU 1 to GPU 0 can never finish"),
                         InfeasibleError);
}

TEST_CASE("a link that goes down loses its packets until routing knows, then the flow goes round it") {
    const Fabric fabric(test::hosts(32, 8, 8, 50e9, 500e-9));
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.link_events = "given directly";
    spec.reroute_delay = 100e-6;
    const auto run = [&](std::vector<TimedFault> events) {
        Network network(fabric, spec, 1);
        for (const TimedFault& event : events) {
            network.add_link_event(event);
        }
        network.send({GpuId(0), GpuId(9), 2048 * 4096, 0, 0});
        const std::int64_t last = test::finish(network, 1)[0];
        CHECK(network.conserved());
        return std::pair(last, network.statistics());
    };
    const auto clean = run({});
    CHECK(clean.second.drops == 0);
    std::vector<TimedFault> all;
    for (std::uint32_t spine = 0; spine < 4; ++spine) {
        all.push_back({20e-6, {FaultKind::link_down, {Place::What::leaf_spine, 0, spine}}});
        all.push_back({20e-6, {FaultKind::link_down, {Place::What::leaf_spine, 1, spine + 4}}});
    }
    // Every path of the pair dies at one of its ends, so that no flow can get through.
    CHECK_THROWS_AS(run(all), InfeasibleError);
    // Half of the paths: whichever the hash took, the flow ends after the reroute at the latest.
    all.clear();
    for (std::uint32_t spine = 0; spine < 7; ++spine) {
        all.push_back({20e-6, {FaultKind::link_down, {Place::What::leaf_spine, 0, spine}}});
    }
    const auto around = run(all);
    CHECK(around.first >= clean.first);
    CHECK(around.first < clean.first + 1'000'000'000);
    // A degraded link takes as much longer as its rate says.
    std::vector<TimedFault> slow;
    for (std::uint32_t spine = 0; spine < 8; ++spine) {
        slow.push_back({0, {FaultKind::degraded, {Place::What::leaf_spine, 0, spine}, 0.25}});
    }
    CHECK(static_cast<double>(run(slow).first) ==
          doctest::Approx(4.0 * static_cast<double>(clean.first)).epsilon(0.05));
}

TEST_CASE("multipath: one acknowledgement tells of 16 KiB of payload, four packets of 4 KiB") {
    const Fabric fabric(test::hosts(2, 8, 8, 50e9, 500e-9));
    PacketSpec spec;
    spec.transport.window = 2e6;  // all 400 packets: none waits for an acknowledgement
    Network network(fabric, spec, 1);
    network.send({GpuId(0), GpuId(1), 400 * 4096, 0, 0});
    (void)test::finish(network, 1);
    CHECK(network.statistics().control_hops == 2 * 100);
}

TEST_CASE("a flow alone fills its link however short the link is") {
    for (const auto* row : packet::transport_table()) {
        CAPTURE(row->name);
        for (const double latency : {500e-9, 50e-9, 5e-9, 0.0}) {
            CAPTURE(latency);
            const Fabric fabric(test::hosts(2, 8, 8, 12.5e9, latency));
            PacketSpec spec;
            spec.paths.policy.choose("ecmp");
            spec.transport.policy.choose(row->name);
            Network network(fabric, spec, 1);
            network.send({GpuId(0), GpuId(1), 1000 * 4096, 0, 0});
            const double last = static_cast<double>(test::finish(network, 1)[0]);
            const double share = std::string(row->name) == "hpcc" ? 0.95 : 1;  // what it aims at
            CHECK(last == doctest::Approx(1001 * 4160 * 80 / share + 2 * latency * 1e12).epsilon(0.02));
        }
    }
}
