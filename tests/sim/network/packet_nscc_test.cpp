// NSCC: its rules one by one, and what they add up to.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace orrery;
using packet::CongestionSettings;
using packet::Network;

namespace {

constexpr double kPacket = 4160;
constexpr double kRtt = 6e6;                               // ps
constexpr double kScale = 50e9 * 6e-6 / (12.5e9 * 12e-6);  // bandwidth-delay product over that of 100 Gb/s and 12 us
constexpr double kTarget = 0.75 * kRtt;
constexpr double kProduct = 50e9 * 6e-6;

struct OneFlow : packet::CongestionState {
    std::unique_ptr<packet::Transport> transport;
    std::int64_t now = 100'000'000;  // ps

    explicit OneFlow(const std::string& text = "{kind: nscc}") : transport(test::transport(text).policy.make()) {
        CongestionSettings run;
        run.packet = kPacket;
        run.payload = 4096;
        run.line_rate = 50e9;
        run.base_rtt = kRtt;
        run.max_window = 1.5 * kProduct;
        run.told = 4 * kPacket;
        run.trims = true;
        transport->begin(run);
        transport->start(*this);
    }
    /// `delay`: ps of queueing. Nine packets and more are a batch of their own.
    void acknowledge(double delay, bool marked, double bytes = 9 * kPacket) {
        transport->on_ack(*this, {now, std::llround(kRtt + delay), bytes, marked, 0, 0, 20 * kPacket});
    }
    void trim(double bytes = kPacket) {
        transport->on_loss(*this, {now, bytes, 0, 0, 20 * kPacket, std::llround(kRtt), false});
    }
};

/// FCT of each message, ps.
std::vector<std::int64_t> run_case(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs,
                                   std::uint32_t hosts, std::uint64_t packets, double latency = 500e-9) {
    const Fabric fabric(test::hosts(hosts, 8, 8, 50e9, latency));
    PacketSpec spec;
    spec.paths = test::paths("{kind: oblivious}");
    spec.transport.policy.choose("nscc");
    spec.queues.trim = true;
    spec.queues.size = 64 * kPacket;
    spec.queues.mark_low = 13 * kPacket;
    spec.queues.mark_high = 51 * kPacket;
    Network network(fabric, spec, 1);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        network.send({GpuId(pairs[i].first), GpuId(pairs[i].second), packets * 4096, 0, i});
    }
    std::vector<std::int64_t> done = test::finish(network, pairs.size());
    CHECK(network.conserved());
    CHECK(network.statistics().timeouts == 0);
    return done;
}

constexpr double kPerPacket = 4160 * 20;                // ps on a link
constexpr double kUnloaded = 4 * (kPerPacket + 500e3);  // ps, one packet one way between leaves

}  // namespace

TEST_CASE("NSCC: proportional increase below the target, fair increase above it, and a step each round trip") {
    const double step = 0.15 * 4096 * kScale;
    OneFlow early;
    early.window = 50 * kPacket;
    early.acknowledge(2e6, false);
    const double gain = 4 * 4096 * kScale / 12e6 * 9 * kPacket * (kTarget - 2e6) / (50 * kPacket);
    CHECK(early.window == doctest::Approx(50 * kPacket + gain + step).epsilon(1e-12));
    const double before = early.window;
    early.acknowledge(2e6, false);  // within the round trip: no step
    CHECK(early.window == doctest::Approx(before + gain * 50 * kPacket / before).epsilon(1e-12));
    OneFlow late;
    late.window = 50 * kPacket;
    late.acknowledge(5e6, false);
    CHECK(late.window == doctest::Approx(50 * kPacket + 5 * 4096 * kScale * 9 / 50 + step).epsilon(1e-12));
    OneFlow marked;
    marked.window = 50 * kPacket;
    marked.acknowledge(2e6, true);  // early but marked: only the step
    CHECK(marked.window == doctest::Approx(50 * kPacket + step).epsilon(1e-12));
}

TEST_CASE("NSCC: increases come into force in batches of eight packets or a round trip") {
    OneFlow flow;
    flow.window = 50 * kPacket;
    flow.acknowledge(2e6, false);
    const double after = flow.window;
    flow.acknowledge(2e6, false, 4 * kPacket);
    flow.acknowledge(2e6, false, 4 * kPacket);
    CHECK(flow.window == after);
    flow.acknowledge(2e6, false, kPacket);
    CHECK(flow.window > after);
}

TEST_CASE("NSCC: while nothing waits for a whole window, a quarter of the scaled bytes at once") {
    OneFlow flow;
    flow.window = 10 * kPacket;
    flow.acknowledge(0, false, 8 * kPacket);
    const double before = flow.window;
    flow.acknowledge(0, false, 8 * kPacket);
    CHECK(flow.window > before + 0.25 * kScale * 8 * kPacket - 1);
}

TEST_CASE("NSCC: multiplicative decrease by the excess of the mean delay, once a round trip, at most to half") {
    OneFlow flow;
    double mean = 0;
    for (int i = 0; i < 400; ++i) {
        flow.now += 1000;
        flow.acknowledge(2 * kTarget, true, 1);
        mean += (2 * kTarget - mean) / 80;
    }
    flow.window = 50 * kPacket;
    flow.now += 10 * static_cast<std::int64_t>(kRtt);
    mean += (2 * kTarget - mean) / 80;
    flow.acknowledge(2 * kTarget, true, 1);
    const double step = 0.15 * 4096 * kScale;
    const double less = 50 * kPacket * (1 - 0.8 * (mean - kTarget) / mean);
    CHECK(flow.window == doctest::Approx(less + step).epsilon(1e-9));
    flow.now += static_cast<std::int64_t>(kRtt) - 1;
    flow.acknowledge(2 * kTarget, true, 1);
    CHECK(flow.window == doctest::Approx(less + step).epsilon(1e-9));
}

TEST_CASE("NSCC: what is trimmed is taken off the window, and Quick Adapt sets it to what arrived") {
    OneFlow flow;
    flow.acknowledge(0, false, kPacket);  // a period of Quick Adapt begins
    flow.window = 50 * kPacket;
    flow.trim(3 * kPacket);
    CHECK(flow.window == 47 * kPacket);
    flow.acknowledge(2 * kTarget, true, 5 * kPacket);
    flow.now += static_cast<std::int64_t>(kRtt + kTarget) + 1;
    flow.trim();
    CHECK(flow.window == 5 * kPacket);
    // Marks of what was in flight then are old news.
    flow.acknowledge(2 * kTarget, true, 10 * kPacket);
    CHECK(flow.window == 5 * kPacket);
    OneFlow without("{kind: nscc, nscc_quick_adapt: false}");
    without.acknowledge(0, false, kPacket);
    without.window = 50 * kPacket;
    without.now += 100'000'000;
    without.trim();
    CHECK(without.window == 49 * kPacket);
}

TEST_CASE("NSCC: a shorter path than the longest has a smaller window") {
    OneFlow flow;
    CHECK(flow.window == 1.5 * kProduct);
    flow.transport->on_ack(flow, {flow.now, static_cast<std::int64_t>(kRtt / 2), kPacket, false, 0, 0, 0});
    CHECK(flow.window == doctest::Approx(0.75 * kProduct));
}

TEST_CASE("NSCC: an incast takes its bytes over the receiver's rate and a round trip, within 4 %") {
    for (const std::uint32_t senders : {8U, 16U, 31U}) {
        CAPTURE(senders);
        std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
        for (std::uint32_t i = 0; i < senders; ++i) {
            pairs.emplace_back(8 + i, 0);
        }
        const auto done = run_case(pairs, 64, 256);
        const double last = static_cast<double>(*std::max_element(done.begin(), done.end()));
        CHECK(last >= senders * 256 * kPerPacket);
        CHECK(last <= (senders * 256 * kPerPacket + 2 * kUnloaded) * 1.04);
    }
}

TEST_CASE("NSCC: a random permutation runs near line rate, and two flows share a link alike") {
    std::vector<std::uint32_t> to(64);
    std::iota(to.begin(), to.end(), 0U);
    RandomStream random(3, "permutation");
    random.shuffle(to);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (std::uint32_t i = 0; i < 64; ++i) {
        if (to[i] != i) {
            pairs.emplace_back(i, to[i]);
        }
    }
    const auto done = run_case(pairs, 64, 2048);
    const double mean = static_cast<double>(std::accumulate(done.begin(), done.end(), std::int64_t{0})) /
                        static_cast<double>(done.size());
    CHECK(mean < 1.15 * (2048 * kPerPacket + kUnloaded));
    const auto two = run_case({{8, 0}, {16, 0}}, 64, 4096);
    CHECK(static_cast<double>(std::min(two[0], two[1])) > 0.9 * static_cast<double>(std::max(two[0], two[1])));
}
