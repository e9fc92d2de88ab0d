// RCCC: credit by backlog, by closed forms.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using packet::Network;

namespace {

constexpr double kFull = 4160 * 20;  // ps on a link
constexpr double kHeader = 64 * 20;  // ps
constexpr double kLatency = 500e3;   // ps
constexpr double kWindow = 64;       // packets

struct Outcome {
    double last = 0;  ///< ps
    PacketStatistics statistics;
};
Outcome incast(const std::string& transport, std::uint32_t senders, std::uint64_t packets, double queue = 0) {
    const Fabric fabric(test::hosts(32, 32, 4, 50e9, 500e-9));
    PacketSpec spec;
    spec.paths = test::paths("{kind: oblivious}");
    spec.transport = test::transport(transport);
    spec.transport.window = kWindow * 4160;
    spec.queues.size = queue;
    spec.queues.trim = queue > 0;
    Network network(fabric, spec, 1);
    for (std::uint32_t i = 1; i <= senders; ++i) {
        network.send({GpuId(i), GpuId(0), packets * 4096, 0, i - 1});
    }
    const auto done = test::finish(network, senders);
    CHECK(network.conserved());
    CHECK(network.statistics().timeouts == 0);
    return {static_cast<double>(*std::max_element(done.begin(), done.end())), network.statistics()};
}

}  // namespace

TEST_CASE("RCCC: a flow alone speculates until it is heard, and gets credit for each further packet, no more") {
    // Its first acknowledgement is back after a round trip over two links; a credit follows it.
    const double heard = 2 * (kFull + kLatency) + 2 * (kHeader + kLatency);
    const auto speculative = static_cast<std::uint64_t>(heard / kFull) + 1;
    REQUIRE(speculative < kWindow);
    const std::uint64_t packets = 1000;
    const Outcome out = incast("{kind: rccc}", 1, packets);
    CHECK(out.last == doctest::Approx((packets + 1) * kFull + 2 * kLatency).epsilon(0.001));
    // Acknowledgements and credits, each over two links.
    CHECK(out.statistics.control_hops == 2 * (packets + packets - speculative));
    // As long as it is told to: a tenth of that.
    const Outcome less = incast("{kind: rccc, rccc_speculative: " + std::to_string(3 * 4160) + " B}", 1, packets);
    CHECK(less.statistics.control_hops == 2 * (packets + packets - 3));
}

TEST_CASE("RCCC: credit goes to backlog alone, where credit by arrival also goes to those who have sent all") {
    // Messages of one packet more than a window, from many: after the first windows one packet of each is missing.
    const std::uint32_t senders = 16;
    const auto packets = static_cast<std::uint64_t>(kWindow) + 1;
    const double bound = senders * static_cast<double>(packets) * kFull;
    const Outcome by_backlog = incast("{kind: rccc}", senders, packets);
    const Outcome by_arrival = incast("{kind: receiver-driven}", senders, packets);
    CHECK(by_backlog.last < bound + 4 * (kFull + kLatency) + 2 * kFull);
    CHECK(by_backlog.last >= bound);
    CHECK(by_backlog.statistics.control_hops < by_arrival.statistics.control_hops);
}

TEST_CASE("RCCC: an incast is trimmed in its speculative windows alone, and its link is then never idle") {
    const std::uint32_t senders = 16;
    const std::uint64_t packets = 256;
    const Outcome out = incast("{kind: rccc}", senders, packets, 32 * 4160);
    CHECK(out.statistics.trims > 0);
    CHECK(out.statistics.trims < senders * kWindow);
    CHECK(out.statistics.retransmissions == out.statistics.trims);
    CHECK(out.last >= senders * packets * kFull);
    CHECK(out.last < 1.03 * senders * packets * kFull);
}

TEST_CASE("RCCC: credit without a transport that knows it is refused") {
    CHECK_THROWS_WITH_AS((void)test::transport("{kind: window, rccc_speculative: 1 MB}"),
                         doctest::Contains("unknown key 'rccc_speculative'"), ConfigError);
    CHECK_THROWS_WITH_AS((void)test::transport("{kind: nscc, receiver_credits: true}"),
                         doctest::Contains("unknown key 'receiver_credits'"), ConfigError);
}
