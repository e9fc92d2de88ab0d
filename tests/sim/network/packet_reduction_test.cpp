// All-reduces inside the switches: times to the picosecond, what each link carries, and losses.

#include "tests/support/packets.hpp"
#include "workloads/collective/message_run.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace orrery;
using packet::Network;

namespace {

constexpr std::uint64_t kMtu = 4096;
constexpr std::int64_t kFull = std::int64_t{4160} * 20;  // ps, a full packet at 400 Gb/s
constexpr std::int64_t kLatency = 500'000;

packet::ReductionRequest over(std::uint32_t hosts, std::uint64_t bytes, std::uint64_t token = 0) {
    packet::ReductionRequest request;
    for (std::uint32_t i = 0; i < hosts; ++i) {
        request.members.emplace_back(i);
    }
    request.bytes = bytes;
    request.token = token;
    return request;
}

std::int64_t time_of(const FabricShape& shape, const PacketSpec& spec, const packet::ReductionRequest& request,
                     PacketStatistics* statistics = nullptr) {
    const Fabric fabric(shape);
    Network network(fabric, spec, 1);
    network.reduce(request);
    const auto done = test::finish(network, 1);
    CHECK(network.conserved());
    CHECK(network.payload_delivered() ==
          static_cast<double>(request.bytes) * static_cast<double>(request.members.size()));
    if (statistics != nullptr) {
        *statistics = network.statistics();
    }
    return done[0];
}

}  // namespace

TEST_CASE(
    "packet reductions: up and down a tree of any height take the vector's time and a store-and-forward a switch") {
    // One leaf; two leaves under a spine; two pods under a core switch.
    FabricShape leaf = test::hosts(4, 4, 2, 50e9, 500e-9);
    FabricShape spine = test::hosts(4, 2, 2, 50e9, 500e-9);
    FabricShape core = test::hosts(4, 1, 1, 50e9, 500e-9);
    core.kind = FabricKind::fat_tree;
    core.leaf_groups_per_pod = 2;
    core.cores_per_spine = 2;
    PacketSpec spec;
    for (const char* transport : {"multipath", "roce", "ideal", "receiver-driven"}) {
        spec.transport.policy.choose(transport);
        spec.transport.recovery = Recovery::selective;
        for (const std::int64_t packets : {1, 2, 1000}) {
            CAPTURE(packets);
            const auto bytes = static_cast<std::uint64_t>(packets) * kMtu;
            CHECK(time_of(leaf, spec, over(4, bytes)) == (packets + 1) * kFull + 2 * kLatency);
            CHECK(time_of(spine, spec, over(4, bytes)) == (packets + 3) * kFull + 4 * kLatency);
            CHECK(time_of(core, spec, over(4, bytes)) == (packets + 5) * kFull + 6 * kLatency);
        }
    }
    // A last packet of one byte.
    const std::int64_t last = std::int64_t{65} * 20;
    CHECK(time_of(leaf, spec, over(4, 10 * kMtu + 1)) == 11 * kFull + last + 2 * kLatency);
}

TEST_CASE(
    "packet reductions: every link of the tree carries the vector once each way, however many members there are") {
    PacketSpec spec;
    for (const std::uint32_t hosts : {4U, 8U, 16U}) {
        PacketStatistics statistics;
        packet::ReductionRequest request = over(hosts, 100 * kMtu);
        request.tree = 3;
        (void)time_of(test::hosts(hosts, 4, 4, 50e9, 500e-9), spec, request, &statistics);
        const std::uint32_t leaves = hosts / 4;
        CHECK(statistics.packet_hops == 100 * 2 * (hosts + (leaves > 1 ? leaves : 0)));
        CHECK(statistics.max_link_bytes == doctest::Approx(leaves > 1 ? 100 * 4160 : 0));
        CHECK(statistics.retransmissions == 0);
        CHECK(statistics.control_hops == 0);
    }
}

TEST_CASE("packet reductions: few slots in the switches bound the rate to half of them a round trip") {
    const FabricShape shape = test::hosts(4, 4, 1, 50e9, 500e-9);
    PacketSpec spec;
    spec.queues.reduction_slots = 8;  // four packets, then their sums, one round trip later four more
    const std::int64_t round = 2 * kFull + 2 * kLatency;
    CHECK(time_of(shape, spec, over(4, 400 * kMtu)) == 99 * round + round + 3 * kFull);
    spec.queues.reduction_slots = 1;
    CHECK_THROWS_AS(time_of(shape, spec, over(4, kMtu)), ConfigError);
}

TEST_CASE("packet reductions: lost contributions and lost sums are asked for again, also after the slots are reused") {
    PacketSpec spec;
    spec.bit_error_rate = 3e-7;  // one packet of a hundred on each link
    for (const std::int64_t slots : {0, 4, 2}) {
        spec.queues.reduction_slots = slots;
        PacketStatistics statistics;
        (void)time_of(test::hosts(6, 2, 2, 50e9, 500e-9), spec, over(6, 500 * kMtu), &statistics);
        CHECK(statistics.corrupted > 20);
        CHECK(statistics.retransmissions > 20);
    }
}

TEST_CASE("packet reductions: full queues, trimming and pauses beside them take no contribution and no sum away") {
    PacketSpec spec;
    spec.queues.size = 20 * 4160;
    for (const int kind : {0, 1, 2}) {
        CAPTURE(kind);
        spec.queues.trim = kind == 1;
        spec.queues.pfc = kind == 2;
        FabricShape shape = test::hosts(8, 4, 2, 50e9, 500e-9);
        shape.leaf_oversubscription = 4;
        const Fabric fabric(shape);
        Network network(fabric, spec, 1);
        for (std::uint64_t i = 0; i < 4; ++i) {
            network.reduce(over(8, 100 * kMtu, i));
        }
        for (std::uint32_t i = 0; i < 4; ++i) {
            network.send({GpuId(i), GpuId(5), 200 * kMtu, 0, 4 + i});
        }
        (void)test::finish(network, 8);
        CHECK(network.conserved());
        const PacketStatistics statistics = network.statistics();
        CHECK((kind == 0 ? statistics.drops > 0 : kind == 1 ? statistics.trims > 0 : statistics.pause_s > 0));
        CHECK((kind == 2 ? statistics.drops : 0) == 0);
        CHECK(network.payload_delivered() == (32 * 100 + 800) * static_cast<double>(kMtu));
    }
}

TEST_CASE(
    "packet reductions: a tree whose link stays down is an error that names the message, one that returns is not") {
    const FabricShape shape = test::hosts(4, 2, 2, 50e9, 500e-9);
    const Fabric fabric(shape);
    PacketSpec spec;
    spec.link_events = "given directly";
    spec.transport.retries = 6;
    for (const bool returns : {false, true}) {
        Network network(fabric, spec, 1);
        network.add_link_event({1e-6, {FaultKind::link_down, {Place::What::leaf_spine, 0, 0}}});
        if (returns) {
            network.add_link_event({50e-6, {FaultKind::link_down, {Place::What::leaf_spine, 0, 0}}, true});
        }
        network.reduce(over(4, 100 * kMtu));
        if (returns) {
            CHECK(test::finish(network, 1)[0] > 50'000'000);
            CHECK(network.conserved());
        } else {
            CHECK_THROWS_WITH_AS(test::finish(network, 1), doctest::Contains("can never finish"), InfeasibleError);
        }
    }
}

TEST_CASE("packet reductions: an in-switch all-reduce over nodes takes S/B, and packet, fluid and analytic agree") {
    FabricShape shape = test::hosts(16, 4, 4, 50e9, 500e-9);
    const Fabric fabric(shape);
    CollectiveSpec collective;
    collective.algorithm = &algorithm("in-switch");
    collective.bytes = 64 * 1048576.0;
    const Schedule schedule = make_schedule(collective, 16, 1);
    MessageRunOptions options;
    const double fluid = run_messages(fabric, schedule, options).seconds;
    CHECK(fluid * 1e6 == doctest::Approx((collective.bytes / 50e9 + 4 * 500e-9) * 1e6).epsilon(1e-9));
    options.run.fidelity = Fidelity::analytic;
    CHECK(run_messages(fabric, schedule, options).seconds * 1e6 == doctest::Approx(fluid * 1e6).epsilon(1e-9));
    PacketSpec spec;
    options.run = test::by_packet(spec);
    const MessageRunResult packets = run_messages(fabric, schedule, options);
    CHECK(packets.seconds * 1e6 == doctest::Approx(fluid * 4160 / 4096 * 1e6).epsilon(2e-3));
    CHECK(packets.bytes == 16 * collective.bytes);
    CHECK_THROWS_WITH_AS(run_messages_on_simgrid(fabric, schedule, PathChoice::spray), doctest::Contains("SimGrid"),
                         InfeasibleError);
    // Nodes of four GPUs with a rail each: the share of a rail crosses the fabric once each way.
    shape = test::hosts(8, 4, 4, 50e9, 500e-9);
    shape.gpus_per_node = shape.nics_per_node = shape.rails = 4;
    shape.intra_bandwidth = 400e9;
    const Fabric rails(shape);
    const Schedule nodes = make_schedule(collective, 32, 4);
    options.run = RunSettings();
    const double inside = 2 * 0.75 * collective.bytes / 400e9;
    CHECK(run_messages(rails, nodes, options).seconds * 1e6 ==
          doctest::Approx((inside + collective.bytes / 4 / 50e9 + 4 * 500e-9) * 1e6).epsilon(1e-9));
    options.run = test::by_packet(spec);
    CHECK(run_messages(rails, nodes, options).seconds * 1e6 ==
          doctest::Approx((inside + collective.bytes / 4 / 50e9 * 4160 / 4096 + 4 * 500e-9) * 1e6).epsilon(2e-3));
    CHECK_THROWS_WITH_AS(make_schedule(collective, 30, 4), doctest::Contains("whole nodes"), InfeasibleError);
}
