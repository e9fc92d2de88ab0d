// DCQCN in simulated networks against its published equations: Zhu et al., "Congestion control for large-scale RDMA
// deployments", SIGCOMM 2015, with the settings of their table 14. The congestion control alone is tested in packet_transport_test.cpp.

#include "sim/base/math.hpp"
#include "tests/support/packets.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace orrery;
using packet::Network;

namespace {

constexpr double kRate = 5e9;      // B/s: 40 Gb/s, as in the paper
constexpr double kPacket = 1024;   // B on the wire
constexpr double kTimer = 55e-6;   // s, of alpha and of the rate
constexpr double kGap = 50e-6;     // s between notifications
constexpr double kIncrease = 5e6;  // B/s

PacketSpec roce() {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.mtu = 1000;
    spec.header = 24;
    spec.transport.policy.choose("roce");
    spec.transport.timeout = 0.1;
    return spec;
}

PortReport port(const Network& network, const std::string& name) {
    const std::vector<PortReport> ports = network.report().ports;
    const auto found = std::find_if(ports.begin(), ports.end(), [&](const PortReport& p) { return p.name == name; });
    REQUIRE(found != ports.end());
    return *found;
}

void run_to(Network& network, double seconds) {
    const auto at = static_cast<std::int64_t>(seconds * 1e12);
    while (network.next_time() <= at) {
        network.run(at);
    }
    network.advance(at);
}

// The fluid equations 5 to 9 of the paper, by small steps until they stand still.
struct FixedPoint {
    double marked = 0;  // share of packets
    double queue = 0;   // packets
    double rate = 0;    // packets/s of one flow
};
FixedPoint fluid(double flows, double mark_low, double mark_high, double most) {
    const double link = kRate / kPacket;
    const double bytes = 10e6 / kPacket;
    const double increase = kIncrease / kPacket;
    const double step = 1e-6;
    double queue = 0;
    double alpha = 1;
    double rate = link / flows;
    double target = rate;
    double marked = 0;
    for (int i = 0; i < 400'000; ++i) {
        marked = std::clamp((queue - mark_low) / (mark_high - mark_low) * most, 1e-9, 0.999);
        const auto unmarked = [&](double packets) { return pow_pinned(1 - marked, packets); };
        const double cuts = (1 - unmarked(kGap * rate)) / kGap;
        const double by_bytes = rate * marked / (1 / unmarked(bytes) - 1);
        const double by_time = rate * marked / (1 / unmarked(kTimer * rate) - 1);
        const double change_of_rate = -rate * alpha / 2 * cuts + (target - rate) / 2 * (by_bytes + by_time);
        const double change_of_target = -(target - rate) * cuts + increase * (by_bytes * unmarked(5 * bytes) +
                                                                              by_time * unmarked(5 * kTimer * rate));
        queue = std::max(0.0, queue + step * (flows * rate - link));
        alpha += step / kTimer / 256 * ((1 - unmarked(kTimer * rate)) - alpha);
        rate = std::min(link, rate + step * change_of_rate);
        target = std::min(link, target + step * change_of_target);
    }
    return {marked, queue, rate};
}

}  // namespace

TEST_CASE("DCQCN: after one notification a flow's packets leave at the rates of the stages of fast recovery") {
    const Fabric fabric(test::hosts(2, 2, 1, kRate, 500e-9));
    PacketSpec spec = roce();
    spec.queues.mark_low = spec.queues.mark_high = 20 * kPacket;
    spec.link_events = "given directly";
    Network network(fabric, spec, 1);
    // The receiver's link runs at half its rate for 30 us, too short for a second notification.
    network.add_link_event({0, {FaultKind::degraded, {Place::What::nic, 1, 0}, 0.5}});
    network.add_link_event({30e-6, {FaultKind::degraded, {Place::What::nic, 1, 0}}});
    network.send({GpuId(0), GpuId(1), 10'000'000, 0, 0});
    const auto sent_by = [&](double seconds) {
        run_to(network, seconds);
        return port(network, "nic 0 to leaf 0").bytes;
    };
    // The queue grows by a packet in two packets' time and is marked at twenty, which that packet waits for, as long again. The
    // notification comes a round trip later.
    double start = 7e-6;
    double before = sent_by(start);
    for (double now = before; start < 20e-6; before = now) {
        now = sent_by(start + 1e-6);
        if (now - before < 0.7 * kRate * 1e-6) {
            break;
        }
        start += 1e-6;
    }
    CHECK(start == doctest::Approx(80 * kPacket / kRate + 2e-6).epsilon(0.1));
    double share = 0.5;
    double target = 1;
    before = sent_by(start + 2e-6);
    for (int stage = 1; stage <= 8; ++stage) {
        const double now = sent_by(start + 2e-6 + stage * kTimer);
        CAPTURE(stage);
        // The last two microseconds are already of the next stage.
        const double next = (share + std::min(1.0, target + (stage > 5 ? kIncrease / kRate : 0))) / 2;
        const double expected = kRate * (share * (kTimer - 2e-6) + next * 2e-6);
        CHECK(now - before == doctest::Approx(expected).epsilon(0.015));
        before = now;
        share = next;
    }
    CHECK(port(network, "leaf 0 to nic 1").marks > 0);
}

TEST_CASE("DCQCN: flows share a bottleneck equally, with the marks and the queue of the fluid equations' fixed point") {
    for (const std::uint32_t flows : {2U, 4U}) {
        CAPTURE(flows);
        const Fabric fabric(test::hosts(flows + 1, flows + 1, 1, kRate, 500e-9));
        PacketSpec spec = roce();
        spec.queues.mark_low = 5e3;
        spec.queues.mark_high = 200e3;
        spec.queues.mark_probability = 0.01;
        Network network(fabric, spec, 1);
        for (std::uint32_t i = 1; i <= flows; ++i) {
            network.send({GpuId(i), GpuId(0), 1'000'000'000, 0, i - 1});
        }
        const auto sent = [&] {
            std::vector<double> bytes;
            for (std::uint32_t i = 1; i <= flows; ++i) {
                bytes.push_back(port(network, "nic " + std::to_string(i) + " to leaf 0").bytes);
            }
            return bytes;
        };
        const double from = 0.1;
        const double to = 0.35;
        run_to(network, from);
        const std::vector<double> sent_before = sent();
        const PortReport before = port(network, "leaf 0 to nic 0");
        run_to(network, to);
        const std::vector<double> sent_after = sent();
        const PortReport after = port(network, "leaf 0 to nic 0");
        const FixedPoint expected = fluid(flows, 5e3 / kPacket, 200e3 / kPacket, 0.01);
        CHECK(expected.rate * flows * kPacket == doctest::Approx(kRate).epsilon(1e-3));
        double all = 0;
        for (std::uint32_t i = 0; i < flows; ++i) {
            const double rate = (sent_after[i] - sent_before[i]) / (to - from);
            all += rate;
            CHECK(rate == doctest::Approx(expected.rate * kPacket).epsilon(0.04));
        }
        CHECK(all == doctest::Approx(kRate).epsilon(0.005));
        // The equations are of means; with chance in when marks fall, the simulated queue is a quarter to a third longer.
        const double marked =
            static_cast<double>(after.marks - before.marks) / static_cast<double>(after.packets - before.packets);
        const double queue = (after.mean_queue_bytes * to - before.mean_queue_bytes * from) / (to - from);
        CHECK(marked == doctest::Approx(expected.marked).epsilon(0.35));
        CHECK(queue == doctest::Approx(expected.queue * kPacket).epsilon(0.35));
        MESSAGE(flows << " flows: marked " << marked << ", fluid " << expected.marked << "; queue " << queue
                      << ", fluid " << expected.queue * kPacket);
    }
}

TEST_CASE("DCQCN: an incast of 64 loses time after its pauses, when flows cut too far rise by the additive increase") {
    const Fabric fabric(test::hosts(128, 16, 16, 50e9, 500e-9));
    struct Trace {
        double last = 0;              // s
        double marks_late = 0;        // after 0.9 ms
        double paused_late = 0;       // s, after 0.9 ms
        std::vector<double> carried;  // share of the receiver's link, by 100 us
    };
    const double bound = 64 * 256 * 4160 / 50e9;
    const auto incast = [&](bool dcqcn, double increase) {
        PacketSpec spec;
        spec.paths.policy.choose("ecmp");
        spec.transport =
            test::transport(fmt::format("{{kind: roce, dcqcn: {}, dcqcn_increase: {:.0f} B/s}}", dcqcn, increase));
        spec.transport.timeout = 20e-3;
        spec.queues.pfc = true;
        spec.queues.mark_low = 100e3;
        spec.queues.mark_high = 400e3;
        spec.queues.mark_probability = 0.01;
        Network network(fabric, spec, 1);
        for (std::uint32_t i = 1; i <= 64; ++i) {
            network.send({GpuId(i), GpuId(0), 1U << 20, 0, i - 1});
        }
        Trace out;
        PacketStatistics early;
        double before = 0;
        for (int i = 1; network.live_messages() > 0; ++i) {
            const std::int64_t until = i * 100'000'000LL;
            while (network.live_messages() > 0 && network.next_time() <= until) {
                network.run(until);
                out.last = static_cast<double>(network.now()) * 1e-12;
            }
            network.advance(std::max(network.now(), until));
            const double bytes = port(network, "leaf 0 to nic 0").bytes;
            out.carried.push_back((bytes - before) / (50e9 * 100e-6));
            before = bytes;
            early = i == 9 ? network.statistics() : early;
        }
        out.marks_late = static_cast<double>(network.statistics().ecn_marks - early.ecn_marks);
        out.paused_late = network.statistics().pause_s - early.pause_s;
        CHECK(network.statistics().drops == 0);
        return out;
    };
    // Pauses alone keep the link full to the end.
    CHECK(incast(false, kIncrease).last < 1.01 * bound);
    const Trace published = incast(true, kIncrease);
    for (std::size_t i = 0; i < 7; ++i) {
        CHECK(published.carried[i] > 0.99);
    }
    // Then the queues are empty: nothing is marked or paused any more, and yet the link is never full again.
    CHECK(published.marks_late == 0);
    CHECK(published.paused_late == 0);
    CHECK(*std::max_element(published.carried.begin() + 9, published.carried.end()) < 0.6);
    CHECK(published.last > 2.5 * bound);
    // With the increase in proportion to the link, ten times that of 40 Gb/s, most of the loss is gone.
    CHECK(incast(true, 10 * kIncrease).last - bound < 0.5 * (published.last - bound));
}

TEST_CASE(
    "DCQCN: the preset of 400 Gb/s sets what is not given, and fills a link of 400 Gb/s that the one of 2015 does "
    "not") {
    const auto utilisation = [](const std::string& transport, double low, double high, double most) {
        const Fabric fabric(test::hosts(32, 32, 1, 50e9, 500e-9));
        PacketSpec spec;
        spec.paths.policy.choose("ecmp");
        spec.transport = test::transport(transport);
        spec.transport.timeout = 0.1;
        spec.queues.mark_low = low;
        spec.queues.mark_high = high;
        spec.queues.mark_probability = most;
        Network network(fabric, spec, 1);
        for (std::uint32_t i = 1; i <= 16; ++i) {
            network.send({GpuId(i), GpuId(0), std::uint64_t{1} << 40, 0, i});
        }
        run_to(network, 0.02);
        const double before = port(network, "leaf 0 to nic 0").bytes;
        run_to(network, 0.04);
        return (port(network, "leaf 0 to nic 0").bytes - before) / (50e9 * 0.02);
    };
    const double of_2015 = utilisation("{kind: roce}", 100e3, 400e3, 0.01);
    const double of_today = utilisation("{kind: roce, dcqcn_preset: 400g}", 100e3, 400e3, 0.01);
    MESSAGE("utilisation of 400 Gb/s: " << of_2015 << " with 40g, " << of_today << " with 400g");
    CHECK(of_today > 0.96);
}
