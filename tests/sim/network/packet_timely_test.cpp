// TIMELY alone against algorithm 1 of its paper, and in a network: Mittal et al., SIGCOMM 2015.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using packet::Network;

namespace {

constexpr double kLine = 1.25e9;  // B/s: 10 Gb/s, as in the paper
constexpr double kStep = 1.25e6;  // B/s: 10 Mb/s

// One flow on a path of 20 us whose segments of 16 packets complete with the round trips told.
struct Sender {
    std::unique_ptr<packet::Transport> transport;
    packet::CongestionState flow;

    explicit Sender(const std::string& text) : transport(test::transport(text).policy.make()) {
        transport->begin({1000, 1000, kLine, 20e6, 1e9});
        transport->start(flow);
    }
    double complete(double round_trip_us, int packets = 16) {
        const auto delay = static_cast<std::int64_t>((round_trip_us + 0.8) * 1e6);  // with the packet's own 0.8 us
        for (int i = 0; i < packets; ++i) {
            transport->on_ack(flow, {0, delay, 1000, false, 0, 0});
        }
        return flow.rate;
    }
};

}  // namespace

TEST_CASE("TIMELY: additive below T_low, multiplicative above T_high, between them by the gradient") {
    Sender sender("{kind: timely, timely_alpha: 1}");
    double rate = kLine;
    CHECK(sender.complete(100) == rate);  // one round trip has no gradient
    CHECK(sender.complete(105) == doctest::Approx(rate *= 1 - 0.8 * 5 / 20));
    CHECK(sender.complete(300, 15) == rate);  // a segment that is not complete
    CHECK(sender.complete(105, 1) == rate + kStep);
    rate += kStep;
    // Falling: one step each, five from the fifth in a row on; what rises ends it.
    for (int i = 1; i <= 6; ++i) {
        CHECK(sender.complete(105 - i) == doctest::Approx(rate += (i < 5 ? 1 : 5) * kStep));
    }
    CHECK(sender.complete(101) == doctest::Approx(rate *= 1 - 0.8 * 2 / 20));
    CHECK(sender.complete(100) == doctest::Approx(rate += kStep));
    CHECK(sender.complete(1000) == doctest::Approx(rate *= 1 - 0.8 * (1 - 500.0 / 1000)));
    CHECK(sender.complete(900) == doctest::Approx(rate *= 1 - 0.8 * (1 - 500.0 / 900)));  // whatever the gradient
    CHECK(sender.complete(40) == doctest::Approx(rate += kStep));
    CHECK(sender.complete(49) == doctest::Approx(rate += kStep));  // here too
    CHECK(sender.complete(200) == doctest::Approx(rate /= 2));     // never by more than half
}

TEST_CASE("TIMELY: gradients are of smoothed differences, and rates keep within their bounds") {
    Sender sender("{kind: timely}");
    (void)sender.complete(100);
    CHECK(sender.complete(108) == doctest::Approx(kLine * (1 - 0.8 * 0.875 * 8 / 20)));
    CHECK(sender.complete(108) == doctest::Approx(kLine * (1 - 0.8 * 7 / 20) * (1 - 0.8 * 0.125 * 7 / 20)));
    for (int i = 0; i < 100; ++i) {
        (void)sender.complete(1e5);
    }
    CHECK(sender.flow.rate == kStep);
    for (int i = 0; i < 2000; ++i) {
        (void)sender.complete(20);
    }
    CHECK(sender.flow.rate == kLine);
}

TEST_CASE("TIMELY: two senders share a link equally, and once they have started their queue turns at T_low") {
    const Fabric fabric(test::hosts(16, 8, 4, kLine, 1e-6));
    PacketSpec spec;
    spec.mtu = 1000;
    spec.paths.policy.choose("ecmp");
    spec.transport.policy.choose("timely");
    spec.queue_samples = 100e-6;
    Network network(fabric, spec, 1);
    constexpr std::uint64_t kBytes = 40'000'000;
    network.send({GpuId(1), GpuId(0), kBytes, 0, 0});
    network.send({GpuId(2), GpuId(0), kBytes, 0, 1});
    const auto done = test::finish(network, 2);
    const double bound = 2 * static_cast<double>(kBytes) * 1.064 / kLine;  // s
    CHECK(static_cast<double>(std::min(done[0], done[1])) > 0.95 * static_cast<double>(std::max(done[0], done[1])));
    // Two senders at the line's rate are too many: both halve more than once, and climb step by step.
    CHECK(static_cast<double>(std::max(done[0], done[1])) * 1e-12 < 1.7 * bound);
    CHECK(network.statistics().retransmissions == 0);
    const PacketReport report = network.report();
    double longest = 0;  // s of queue
    for (const QueueSample& sample : report.samples) {
        if (sample.time > 0.3 * bound && report.ports[sample.port].name == "leaf 0 to nic 0") {
            longest = std::max(longest, sample.bytes / kLine);
        }
    }
    CHECK(longest > 40e-6);
    CHECK(longest < 60e-6);
}
