// HPCC: its algorithm step by step, and the steady states that it has in a network.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using packet::LinkLoad;
using packet::Network;

namespace {

constexpr double kRate = 50e9;  // B/s
constexpr double kRtt = 6e6;    // ps
constexpr double kProduct = kRate * kRtt * 1e-12;
constexpr double kAdded = kProduct * 0.05 / 100;

struct OneFlow : packet::CongestionState {
    std::unique_ptr<packet::Transport> transport = test::transport("{kind: hpcc}").policy.make();

    OneFlow() {
        packet::CongestionSettings run;
        run.packet = 4160;
        run.line_rate = kRate;
        run.base_rtt = kRtt;
        transport->begin(run);
        transport->start(*this);
    }
    void acknowledge(const std::vector<LinkLoad>& links, std::uint32_t cumulative, std::uint32_t next) {
        packet::Acknowledged ack;
        ack.cumulative = cumulative;
        ack.next = next;
        ack.links = links;
        transport->on_ack(*this, ack);
    }
    // The pace is W / T, and the window lets one packet more go.
    void is(double window_bytes) const {
        CHECK(window == doctest::Approx(window_bytes + 4160).epsilon(1e-12));
        CHECK(rate == doctest::Approx(window_bytes / (kRtt * 1e-12)).epsilon(1e-12));
    }
};

// A link that was busy for this share of a round trip.
LinkLoad busy(double share, double waiting = 0, double trips = 1) {
    return {kRate, share * trips * kProduct, trips * kRtt, waiting};
}

struct Outcome {
    std::vector<double> done;  ///< ps
    PortReport receiver;
};
// Messages of so many packets from hosts 1 and up to host 0, all on one leaf of two.
Outcome incast(std::uint32_t senders, std::uint64_t packets, const std::string& transport = "{kind: hpcc}") {
    const Fabric fabric(test::hosts(32, 16, 4, kRate, 500e-9));
    PacketSpec spec;
    spec.paths = test::paths("{kind: ecmp}");
    spec.transport = test::transport(transport);
    Network network(fabric, spec, 1);
    for (std::uint32_t i = 1; i <= senders; ++i) {
        network.send({GpuId(i), GpuId(0), packets * 4096, 0, i - 1});
    }
    Outcome out;
    for (const std::int64_t at : test::finish(network, senders)) {
        out.done.push_back(static_cast<double>(at));
    }
    CHECK(network.conserved());
    CHECK(network.statistics().retransmissions == 0);
    const PacketReport report = network.report();
    out.receiver = report.ports[32];
    CHECK(out.receiver.name == "leaf 0 to nic 0");
    return out;
}

// Two leaves apart and back, as the fabric of incast() has it.
constexpr double kTrip = 4 * (2 * 500e3 + (4160 + 64) * 20);  // ps

}  // namespace

TEST_CASE(
    "HPCC: windows by ratio above the utilisation aimed at, additive below it, from a reference of each round trip") {
    OneFlow flow;
    flow.is(kProduct);
    flow.acknowledge({}, 1, 80);  // a first acknowledgement has nothing to compare with
    flow.is(kProduct);
    // The busiest of the links decides, its queue counted.
    flow.acknowledge({busy(0.5), busy(1.0, 0.2 * kProduct), busy(0.9)}, 2, 80);
    const double first = kProduct * 0.95 / 1.2 + kAdded;
    flow.is(first);
    // Within the round trip the same reference again, however many acknowledgements come.
    flow.acknowledge({busy(1.9)}, 3, 81);
    flow.is(first * 0.95 / 1.9 + kAdded);
    flow.acknowledge({busy(1.0)}, 80, 160);
    flow.is(first * 0.95 / 1.0 + kAdded);
    // Five additive steps, then by ratio although the link is not as busy as it should be.
    flow.acknowledge({busy(0.5)}, 81, 200);
    double window = first + kAdded;
    flow.is(window);
    for (std::uint32_t step = 2; step <= 5; ++step) {
        flow.acknowledge({busy(0.5)}, 200 * step, 200 * step + 100);
        window += kAdded;
        flow.is(window);
    }
    flow.acknowledge({busy(0.9)}, 2000, 2100);
    flow.is(std::min(kProduct, window * 0.95 / 0.9 + kAdded));
}

TEST_CASE("HPCC: utilisation is smoothed by the share of a round trip that it was measured over") {
    OneFlow flow;
    flow.acknowledge({busy(2.0, 0, 0.25)}, 1, 80);
    flow.is(kProduct * 0.95 / (0.75 * 1 + 0.25 * 2) + kAdded);
}

TEST_CASE("HPCC: a flow alone sends at eta of the link and W_AI per round trip more") {
    const std::uint64_t packets = 20000;
    for (const double flows : {100.0, 5.0}) {
        const std::string text = "{kind: hpcc, hpcc_flows: " + std::to_string(static_cast<int>(flows)) + "}";
        const double share = 0.95 + 0.05 / flows;
        CHECK(incast(1, packets, text).done[0] == doctest::Approx(packets * 4160 * 20 / share).epsilon(0.005));
    }
}

TEST_CASE("HPCC: n flows share eta of the link and n W_AI alike, and leave its queue empty") {
    for (const std::uint32_t senders : {2U, 8U}) {
        const std::uint64_t packets = 24000 / senders;
        const Outcome out = incast(senders, packets, "{kind: hpcc, hpcc_flows: 16}");
        const double share = 0.95 + 0.05 * senders / 16;
        const auto [first, last] = std::minmax_element(out.done.begin(), out.done.end());
        CHECK(*last == doctest::Approx(senders * packets * 4160 * 20 / share).epsilon(0.02));
        CHECK(*first > 0.9 * *last);
        // Full windows came once, at the start; without control they would stand there all the time.
        CHECK(out.receiver.max_queue_bytes <= senders * kRate * kTrip * 1e-12);
        CHECK(out.receiver.mean_queue_bytes < 0.1 * kRate * kTrip * 1e-12);
    }
}

TEST_CASE("HPCC: paths that it cannot follow are refused") {
    PacketSpec spec;
    spec.transport = test::transport("{kind: hpcc, recovery: selective}");
    for (const char* paths : {"{kind: oblivious}", "{kind: adaptive}", "{kind: reps}"}) {
        spec.paths = test::paths(paths);
        const std::vector<std::string> found = problems_of(spec);
        REQUIRE(found.size() == 1);
        CHECK(found.front().find("transport hpcc follows the links of one path") == 0);
    }
    for (const char* paths : {"{kind: ecmp}", "{kind: flowlet}", "{kind: planned}"}) {
        spec.paths = test::paths(paths);
        CHECK(problems_of(spec).empty());
    }
    spec.detour = true;  // three of them and a fat tree are eleven links
    CHECK(problems_of(spec).front().find("up to a number that detours exceed") != std::string::npos);
}
