// The watchdog of priority flow control: storms of a NIC, when they are found, what is lost, what goes on.

#include "tests/support/packets.hpp"
#include "tests/support/support.hpp"
#include "workloads/trace/flow_trace.hpp"

#include <doctest/doctest.h>

#include <fstream>

using namespace orrery;
using packet::Network;

namespace {

constexpr std::uint64_t kMtu = 4096;
constexpr std::uint64_t kPackets = 512;

PacketSpec paused(StormAction action = StormAction::none) {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.transport = test::transport("{kind: roce, dcqcn: false, timeout: 10 ms}");
    spec.queues.pfc = true;
    spec.queues.watchdog = action;
    if (action != StormAction::none) {
        spec.queues.detection = 1e-3;
        spec.queues.restoration = 500e-6;
    }
    spec.link_events = "given directly";
    return spec;
}

struct Outcome {
    std::vector<std::int64_t>
        done;  ///< ps: the message to the NIC that pauses, and one that shares its way up to its leaf
    PacketStatistics statistics;
};

// Host 0 sends to host 7, whose NIC pauses its leaf from the beginning, to `end` s; host 1 to host 6 beside it.
Outcome storm(const PacketSpec& spec, double end) {
    const Fabric fabric(test::hosts(8, 4, 1, 50e9, 500e-9));
    Network network(fabric, spec, 1);
    network.add_link_event({0, {FaultKind::pause, {Place::What::nic, 7, 0}}});
    if (end > 0) {
        network.add_link_event({end, {FaultKind::pause, {Place::What::nic, 7, 0}}, true});
    }
    network.send({GpuId(0), GpuId(7), kPackets * kMtu, 0, 0});
    network.send({GpuId(1), GpuId(6), kPackets * kMtu, 0, 1});
    Outcome out{test::finish(network, 2), network.statistics()};
    CHECK(network.conserved());
    return out;
}

}  // namespace

TEST_CASE("packet watchdog: without one a NIC that pauses without end is named, and stops its neighbours as long") {
    PacketSpec spec = paused();
    CHECK_THROWS_WITH_AS(storm(spec, 0), doctest::Contains("nic 7 pauses its switch without end"), InfeasibleError);
    spec.transport.policy.choose("ideal");
    CHECK_THROWS_WITH_AS(storm(spec, 0), doctest::Contains("nic 7 pauses its switch without end"), InfeasibleError);
    const Outcome out = storm(paused(), 4e-3);
    CHECK_FALSE(out.statistics.watched);
    CHECK(out.done[0] > 4'000'000'000);
    CHECK(out.done[1] > 4'000'000'000);
    CHECK(out.statistics.drops == 0);
}

TEST_CASE("packet watchdog: a port that forwards sends from the end of the detection time on, at its full rate") {
    PacketSpec spec = paused(StormAction::forward);
    const Outcome out = storm(spec, 0);
    CHECK(out.statistics.watched);
    CHECK(out.statistics.storms == 1);
    CHECK(out.statistics.storm_drops == 0);
    CHECK(out.statistics.drops == 0);
    // Every packet leaves the port after 1 ms, in 83.2 ns each at 50 GB/s, and arrives 500 ns later.
    CHECK(out.done[0] == 1'000'000'000 + 83'200 * std::int64_t{kPackets} + 500'000);
    CHECK(out.done[1] < 1'100'000'000);
}

TEST_CASE("packet watchdog: a port that drops loses what comes until the restoration time has passed") {
    PacketSpec spec = paused(StormAction::drop);
    const Outcome out = storm(spec, 4e-3);
    CHECK(out.statistics.storms == 1);
    CHECK(out.statistics.storm_drops > 0);
    CHECK(out.statistics.storm_drops == out.statistics.drops);
    CHECK(out.done[1] < 1'100'000'000);
    CHECK(out.done[0] > 4'500'000'000);
    // A pause that is shorter than the detection time is none of its business.
    const Outcome shorter = storm(spec, 0.9e-3);
    CHECK(shorter.statistics.storms == 0);
    CHECK(shorter.statistics.drops == 0);
    CHECK(shorter.done[0] == 900'000'000 + 83'200 * std::int64_t{kPackets} + 500'000);
}

TEST_CASE("packet watchdog: what is sent to a NIC that never stops is given up, and its message named") {
    PacketSpec spec = paused(StormAction::drop);
    CHECK_THROWS_WITH_AS(storm(spec, 0), doctest::Contains("from GPU 0 to GPU 7 can never finish: 16 timeouts"),
                         InfeasibleError);
}

TEST_CASE("packet watchdog: retries last through the detection time, however short timeouts are") {
    PacketSpec spec = paused(StormAction::forward);
    spec.transport.timeout = 20e-6;
    spec.transport.retries = 2;
    CHECK(storm(spec, 0).done[1] < 1'200'000'000);
}

TEST_CASE("packet watchdog: what contradicts it is refused") {
    const auto said = [](const PacketSpec& spec) {
        const auto problems = problems_of(spec);
        return problems.empty() ? std::string() : problems.front();
    };
    PacketSpec spec = paused(StormAction::drop);
    CHECK(said(spec).empty());
    spec.transport.policy.choose("ideal");
    CHECK(said(spec).find("transport ideal does not send again") != std::string::npos);
    PacketSpec without = paused();
    without.queues.pfc = false;
    CHECK_THROWS_WITH_AS(storm(without, 0), doctest::Contains("lets nic 7 pause its switch"), ConfigError);
}

TEST_CASE("packet watchdog: a file of link events lets NICs alone pause") {
    const test::File file("watchdog-events.csv", "");
    const std::string& path = file.path();
    const Fabric fabric(test::hosts(8, 4, 1, 50e9, 500e-9));
    const auto read = [&](const std::string& lines) {
        std::ofstream(path) << "time_s,link,event,factor\n" << lines;
        return trace::read_link_events(path, fabric, true);
    };
    const auto events = read("0.001,nic 3,pause,\n0.002,nic 3,resume,\n");
    REQUIRE(events.size() == 2);
    CHECK(events[0].fault.kind == FaultKind::pause);
    CHECK(events[1].ends);
    CHECK_THROWS_WITH_AS(read("0,leaf 0 spine 0,pause,\n"), doctest::Contains(":2:3: error: only a NIC pauses"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(read("0,nic 3,paus,\n"), doctest::Contains("down, up, rate, errors, pause, resume"),
                         ConfigError);
}
