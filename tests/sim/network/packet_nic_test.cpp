// What NICs do with messages: several NICs a message, queue pairs, credits of receivers.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using packet::Network;

namespace {

constexpr std::uint64_t kMtu = 4096;
constexpr std::int64_t kFull = std::int64_t{4160} * 20;  // ps, a full packet at 400 Gb/s
constexpr std::int64_t kLatency = 500'000;

std::vector<std::int64_t> run_case(const FabricShape& shape, const PacketSpec& spec,
                                   const std::vector<packet::SendRequest>& requests,
                                   PacketStatistics* statistics = nullptr) {
    const Fabric fabric(shape);
    Network network(fabric, spec, 1);
    for (const packet::SendRequest& request : requests) {
        network.send(request);
    }
    std::vector<std::int64_t> done = test::finish(network, requests.size());
    CHECK(network.conserved());
    if (statistics != nullptr) {
        *statistics = network.statistics();
    }
    return done;
}

}  // namespace

TEST_CASE("packet NICs: a message over n planes takes the time of its n-th part, to the picosecond") {
    // Two nodes with four NICs, each on a plane of its own.
    FabricShape shape = test::hosts(2, 2, 1, 50e9, 500e-9);
    shape.nics_per_node = 4;
    shape.rails = 4;
    PacketSpec spec;
    spec.transport.policy.choose("window");
    spec.transport.window = 1e9;
    spec.paths.policy.choose("ecmp");
    for (const std::int64_t rails : {1, 2, 4}) {
        CAPTURE(rails);
        spec.nic.rails = rails;
        PacketStatistics statistics;
        const auto done = run_case(shape, spec, {{GpuId(0), GpuId(1), 400 * kMtu, 0, 0}}, &statistics);
        CHECK(done[0] == (400 / rails + 1) * kFull + 2 * kLatency);
        CHECK(statistics.packets_delivered == 400);
    }
    // Parts that do not come out even: 401 packets and a byte, the last part has the fewest.
    spec.nic.rails = 4;
    CHECK(run_case(shape, spec, {{GpuId(0), GpuId(1), 401 * kMtu + 1, 0, 0}})[0] ==
          std::int64_t{102} * kFull + 2 * kLatency);
    // A message of one packet uses one NIC.
    CHECK(run_case(shape, spec, {{GpuId(0), GpuId(1), 1, 0, 0}})[0] == 2 * (std::int64_t{65} * 20 + kLatency));
    spec.nic.rails = 5;
    CHECK_THROWS_WITH_AS(run_case(shape, spec, {}), doctest::Contains("a node has 4 NICs"), ConfigError);
}

TEST_CASE("packet NICs: a queue pair sends its messages one after the other without a gap, several of them in turn") {
    const FabricShape shape = test::hosts(2, 2, 1, 50e9, 500e-9);
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.transport.policy.choose("window");
    spec.transport.window = 1e9;
    const std::vector<packet::SendRequest> three = {{GpuId(0), GpuId(1), 100 * kMtu, 0, 0},
                                                    {GpuId(0), GpuId(1), 50 * kMtu, 0, 1},
                                                    {GpuId(0), GpuId(1), 10 * kMtu, 0, 2}};
    const auto at = [](std::int64_t packets) { return (packets + 1) * kFull + 2 * kLatency; };
    spec.nic.queue_pairs = 1;
    auto done = run_case(shape, spec, three);
    CHECK(done[0] == at(100));
    CHECK(done[1] == at(150));
    CHECK(done[2] == at(160));
    // Two queue pairs: the third message waits for the first, the NIC serves both in turn.
    spec.nic.queue_pairs = 2;
    done = run_case(shape, spec, three);
    const auto near = [&](std::int64_t time, std::int64_t packets) { return std::abs(time - at(packets)) <= kFull; };
    CHECK(near(done[1], 100));
    CHECK(near(done[0], 150));
    CHECK(done[2] == at(160));
    // One a message: all in turn.
    spec.nic.queue_pairs = 0;
    done = run_case(shape, spec, three);
    CHECK(near(done[2], 30));
    CHECK(near(done[1], 110));
    CHECK(done[0] == at(160));
}

TEST_CASE("packet NICs: what a queue pair has learnt of congestion outlives its message") {
    const Fabric fabric(test::hosts(10, 10, 1, 50e9, 500e-9));
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.transport.policy.choose("roce");
    spec.transport.timeout = 0.01;
    spec.queues.mark_low = spec.queues.mark_high = 50e3;
    const auto second = [&](std::int64_t queue_pairs) {
        spec.nic.queue_pairs = queue_pairs;
        Network network(fabric, spec, 1);
        for (std::uint32_t i = 1; i < 9; ++i) {
            network.send({GpuId(i), GpuId(0), 512 * kMtu, 0, i});
        }
        while (network.live_messages() > 0) {
            network.run(packet::Wheel::kNever - 1);
        }
        // Alone now, and soon after: the timers have not brought the rate back.
        const std::int64_t start = network.now();
        network.send({GpuId(1), GpuId(0), 64 * kMtu, 0, 0});
        while (network.live_messages() > 0) {
            network.run(packet::Wheel::kNever - 1);
        }
        return network.now() - start;
    };
    CHECK(second(0) == 65 * kFull + 2 * kLatency);
    CHECK(second(1) > 2 * (65 * kFull + 2 * kLatency));
}

TEST_CASE("packet NICs: with credits a multipath incast is trimmed in its first windows, without them all the time") {
    PacketSpec spec;
    const FabricShape shape = test::hosts(32, 8, 8, 50e9, 500e-9);
    std::vector<packet::SendRequest> requests;
    for (std::uint32_t i = 1; i <= 24; ++i) {
        requests.push_back({GpuId(i), GpuId(0), 512 * kMtu, 0, i - 1});
    }
    const double bound = 24 * 512 * static_cast<double>(kFull);
    spec.queues.size = 16 * 4160;
    spec.queues.trim = true;
    PacketStatistics with;
    PacketStatistics without;
    const auto last = [&](bool credits, PacketStatistics* statistics) {
        spec.transport = test::transport(credits ? "{kind: multipath, receiver_credits: true}" : "{kind: multipath}");
        const auto done = run_case(shape, spec, requests, statistics);
        return static_cast<double>(*std::max_element(done.begin(), done.end()));
    };
    CHECK(last(true, &with) < 1.02 * bound);
    CHECK(last(false, &without) < 1.1 * bound);
    CHECK(with.trims < 2 * 24 * 54);  // the first windows, and what is sent again into them
    CHECK(with.trims < without.trims / 4);
    CHECK(with.retransmissions == with.trims);
    CHECK(with.timeouts == 0);
    // Without trimming losses show after a timeout only, and the last flow's timeouts decide; every lost packet's credit is
    // made up for.
    spec.queues.trim = false;
    CHECK(last(true, &with) < 3 * bound);
    CHECK(with.drops > 0);
}

TEST_CASE(
    "packet NICs: data wait in their flows and not at the port, with traffic both ways and ports that are served") {
    const Fabric fabric(test::hosts(32, 8, 8, 50e9, 500e-9));
    for (const bool trim : {false, true}) {
        PacketSpec spec;
        spec.queues.size = trim ? 300e3 : 0;
        spec.queues.trim = trim;
        Network network(fabric, spec, 1);
        network.send({GpuId(0), GpuId(9), 2000 * kMtu, 0, 0});
        network.send({GpuId(9), GpuId(0), 2000 * kMtu, 0, 1});
        (void)test::finish(network, 2);
        const PortReport port = network.report().ports[0];
        CHECK(port.name == "nic 0 to leaf 0");
        // The packet that is being sent, half of it on average.
        CHECK(port.mean_queue_bytes < 0.6 * 4160);
    }
}

TEST_CASE("packet NICs: what a NIC writes slower than it comes waits in its buffer, to the picosecond") {
    const FabricShape shape = test::hosts(4, 4, 1, 50e9, 500e-9);
    PacketSpec spec = test::ideal();
    spec.nic.write_rate = 20e9;
    constexpr std::int64_t kWrite = std::int64_t{4160} * 50;
    constexpr std::int64_t kFirst = 2 * (kFull + kLatency);
    CHECK(run_case(shape, spec, {{GpuId(0), GpuId(1), 100 * kMtu, 0, 0}})[0] == kFirst + 100 * kWrite);
    // Two senders share what is written; a host faster than the line delays by a packet.
    const auto both =
        run_case(shape, spec, {{GpuId(0), GpuId(1), 100 * kMtu, 0, 0}, {GpuId(2), GpuId(1), 100 * kMtu, 0, 1}});
    CHECK(std::max(both[0], both[1]) == kFirst + 200 * kWrite);
    spec.nic.write_rate = 100e9;
    CHECK(run_case(shape, spec, {{GpuId(0), GpuId(1), 100 * kMtu, 0, 0}})[0] == kFirst + 99 * kFull + kFull / 2);
}

TEST_CASE("packet NICs: what finds no room in the buffer is lost and sent again") {
    const FabricShape shape = test::hosts(8, 4, 4, 50e9, 500e-9);
    for (const char* transport : {"multipath", "window", "swift", "roce", "nscc", "receiver-driven", "falcon", "srd"}) {
        CAPTURE(transport);
        PacketSpec spec;
        spec.transport = test::transport(std::string("{kind: ") + transport + "}");
        spec.paths.policy.choose("ecmp");
        spec.nic.write_rate = 25e9;
        spec.nic.buffer = 20 * 4160;
        PacketStatistics statistics;
        const auto done = run_case(shape, spec, {{GpuId(0), GpuId(5), 2000 * kMtu, 0, 0}}, &statistics);
        CHECK(done[0] >= 2000 * 2 * kFull);
        CHECK(statistics.packets_delivered == 2000);
        CHECK(statistics.drops > 0);
        CHECK(statistics.drops <= statistics.retransmissions);
    }
    PacketSpec spec;
    spec.nic.buffer = 1e6;
    spec.nic.write_rate = 1e9;
    CHECK(problems_of(spec).empty());
    spec.skip_error = 0.01;
    CHECK(problems_of(spec).size() == 1);
    spec.skip_error = 0;
    spec.nic.buffer = 4000;
    CHECK(problems_of(spec).size() == 1);
    PacketSpec ideal = test::ideal();
    ideal.nic.write_rate = 1e9;
    CHECK(problems_of(ideal).empty());
    ideal.nic.buffer = 1e6;
    CHECK(problems_of(ideal).size() == 1);
}
