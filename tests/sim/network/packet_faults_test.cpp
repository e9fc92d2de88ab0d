// Links of every kind that fail, slow down or corrupt, ways round them, deadlock of pauses, congestion collapse.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using packet::Network;

namespace {

constexpr std::uint64_t kMtu = 4096;

// Two pods of two leaves with two hosts each; two spines a pod with two core switches each.
FabricShape fat_tree() {
    FabricShape shape = test::hosts(8, 2, 2, 50e9, 500e-9);
    shape.kind = FabricKind::fat_tree;
    shape.leaf_groups_per_pod = 2;
    shape.cores_per_spine = 2;
    return shape;
}

struct Outcome {
    std::int64_t last = 0;
    PacketStatistics statistics;
    PacketReport report;
};

// One message from host 0.
Outcome one(const FabricShape& shape, PacketSpec spec, std::uint32_t to, std::uint64_t bytes,
            const std::vector<TimedFault>& events) {
    const Fabric fabric(shape);
    spec.link_events = "given directly";
    Network network(fabric, spec, 1);
    for (const TimedFault& event : events) {
        network.add_link_event(event);
    }
    network.send({GpuId(0), GpuId(to), bytes, 0, 0});
    const std::int64_t last = test::finish(network, 1)[0];
    CHECK(network.conserved());
    return {last, network.statistics(), network.report()};
}

// Receivers on a leaf whose messages from another leaf take a given spine: hosts from..., to... with that hash.
std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs_over(std::uint32_t leaf, std::uint32_t to_leaf,
                                                                std::uint32_t per_leaf, std::uint32_t spines,
                                                                std::uint32_t spine) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
    for (std::uint32_t from = leaf * per_leaf; from < (leaf + 1) * per_leaf; ++from) {
        for (std::uint32_t to = to_leaf * per_leaf; to < (to_leaf + 1) * per_leaf; ++to) {
            if (mix64((static_cast<std::uint64_t>(from) << 32) | to) % spines == spine) {
                out.emplace_back(from, to);
                break;
            }
        }
    }
    return out;
}

// Four groups of flows whose paths, where two links are dead and switches send round them, close a circle:
// spine 0 > leaf 0 > spine 1 > leaf 1 > spine 0.
Outcome circle(PacketSpec spec) {
    const std::uint32_t per_leaf = 8;
    FabricShape shape = test::hosts(32, per_leaf, 2, 50e9, 500e-9);
    shape.leaf_oversubscription = 4;  // links between switches carry what one host can send
    const Fabric fabric(shape);
    spec.paths.policy.choose("ecmp");
    spec.link_events = "given directly";
    spec.reroute_delay = 1;
    Network network(fabric, spec, 1);
    network.add_link_event({1e-6, {FaultKind::link_down, {Place::What::leaf_spine, 2, 0}}});
    network.add_link_event({1e-6, {FaultKind::link_down, {Place::What::leaf_spine, 3, 1}}});
    network.run(2'000'000);
    std::size_t count = 0;
    const std::uint32_t groups[4][3] = {{3, 2, 0}, {0, 3, 1}, {0, 1, 1}, {1, 0, 0}};
    for (const auto& [from, to, spine] : groups) {
        for (const auto& [a, b] : pairs_over(from, to, per_leaf, 2, spine)) {
            network.send({GpuId(a), GpuId(b), 512 * kMtu, 0, count++});
        }
    }
    REQUIRE(count > 16);
    const auto done = test::finish(network, count);
    CHECK(network.conserved());
    return {*std::max_element(done.begin(), done.end()), network.statistics(), network.report()};
}

}  // namespace

TEST_CASE("packet faults: a NIC's link that comes back lets its messages go on, one that stays down names them") {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    const FabricShape shape = test::hosts(4, 4, 1, 50e9, 500e-9);
    const Outcome clean = one(shape, spec, 1, 512 * kMtu, {});
    for (const std::uint32_t nic : {0U, 1U}) {
        CAPTURE(nic);
        const TimedFault down{10e-6, {FaultKind::link_down, {Place::What::nic, nic, 0}}};
        TimedFault ends = down;
        ends.fault.lasts_s = 50e-6;
        const Outcome back = one(shape, spec, 1, 512 * kMtu, {ends});
        CHECK(back.last >= clean.last + 50'000'000);
        CHECK(back.statistics.drops > 0);
        CHECK_THROWS_WITH_AS(one(shape, spec, 1, 512 * kMtu, {down}),
                             doctest::Contains("from GPU 0 to GPU 1 can never"), InfeasibleError);
    }
}

TEST_CASE("packet faults: a degraded link of any kind takes as much longer as its rate says") {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    const auto seconds = [&](const std::vector<TimedFault>& events) {
        return static_cast<double>(one(fat_tree(), spec, 7, 4096 * kMtu, events).last);
    };
    const double clean = seconds({});
    CHECK(seconds({{0, {FaultKind::degraded, {Place::What::nic, 0, 0}, 0.25}}}) ==
          doctest::Approx(4 * clean).epsilon(0.01));
    CHECK(seconds({{0, {FaultKind::degraded, {Place::What::nic, 7, 0}, 0.25}}}) ==
          doctest::Approx(4 * clean).epsilon(0.01));
    std::vector<TimedFault> cores;
    for (std::uint32_t spine = 0; spine < 4; ++spine) {
        for (std::uint32_t core = 0; core < 2; ++core) {
            cores.push_back({0, {FaultKind::degraded, {Place::What::spine_core, spine, core}, 0.25}});
        }
    }
    // A link to a core switch is as fast as a host's here.
    CHECK(seconds(cores) == doctest::Approx(4 * clean).epsilon(0.01));
}

TEST_CASE(
    "packet faults: once routing knows, nothing is sent over dead core links or towards spines cut off from them") {
    PacketSpec spec;
    spec.paths.policy.choose("oblivious");
    spec.reroute_delay = 20e-6;
    // Core switch 0 of both spines of the first pod is cut off on one side or the other.
    std::vector<TimedFault> events = {{0, {FaultKind::link_down, {Place::What::spine_core, 0, 0}}},
                                      {0, {FaultKind::link_down, {Place::What::spine_core, 3, 0}}}};
    Outcome out = one(fat_tree(), spec, 7, 4096 * kMtu, events);
    CHECK(out.statistics.drops > 0);
    const Outcome clean = one(fat_tree(), spec, 7, 4096 * kMtu, {});
    CHECK(out.last < clean.last + 200'000'000);
    // Spine 0 without any core switch: the leaf must avoid it.
    events = {{0, {FaultKind::link_down, {Place::What::spine_core, 0, 0}}},
              {0, {FaultKind::link_down, {Place::What::spine_core, 0, 1}}}};
    out = one(fat_tree(), spec, 7, 4096 * kMtu, events);
    CHECK(out.last < clean.last + 200'000'000);
    // No way at all between the pods.
    events.push_back({0, {FaultKind::link_down, {Place::What::spine_core, 1, 0}}});
    events.push_back({0, {FaultKind::link_down, {Place::What::spine_core, 1, 1}}});
    CHECK_THROWS_AS(one(fat_tree(), spec, 7, 64 * kMtu, events), InfeasibleError);
}

TEST_CASE("packet faults: switches that send round a dead link of their own lose only what is on it") {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.reroute_delay = 1;
    const FabricShape shape = test::hosts(32, 8, 4, 50e9, 500e-9);
    const auto spine = static_cast<std::uint32_t>(mix64(9) % 4);  // of the message from host 0 to host 9
    for (const std::uint32_t leaf : {0U, 1U}) {
        CAPTURE(leaf);
        const TimedFault down{10e-6, {FaultKind::link_down, {Place::What::leaf_spine, leaf, spine}}};
        spec.detour = true;
        const Outcome out = one(shape, spec, 9, 2048 * kMtu, {down});
        CHECK(out.statistics.drops > 0);
        CHECK(out.statistics.drops < 40);  // two links' time of packets, and acknowledgements
        spec.detour = false;
        CHECK_THROWS_AS(one(shape, spec, 9, 2048 * kMtu, {down}), InfeasibleError);
    }
}

TEST_CASE("packet faults: bit errors of one link are repaired, and only while it has them") {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    const FabricShape shape = test::hosts(4, 4, 1, 50e9, 500e-9);
    const TimedFault errors{0, {FaultKind::bit_errors, {Place::What::nic, 1, 0}, 1e-6}};
    const Outcome bad = one(shape, spec, 1, 2048 * kMtu, {errors});
    // 3.3 % of full packets.
    CHECK(static_cast<double>(bad.statistics.corrupted) == doctest::Approx(2048 * 4160 * 8e-6).epsilon(0.4));
    CHECK(bad.statistics.retransmissions > 0);
    CHECK(one(shape, spec, 2, 2048 * kMtu, {errors}).statistics.corrupted == 0);
    const Outcome healed =
        one(shape, spec, 1, 2048 * kMtu, {errors, {1e-6, {FaultKind::bit_errors, {Place::What::nic, 1, 0}, 0}}});
    CHECK(healed.statistics.corrupted == 0);
}

TEST_CASE("packet faults: pauses that wait for each other in a circle are found, and the circle is named") {
    for (const char* transport : {"{kind: roce, dcqcn: false}", "{kind: ideal}"}) {
        CAPTURE(transport);
        PacketSpec spec;
        spec.transport = test::transport(transport);
        spec.transport.recovery = Recovery::selective;
        spec.queues.pfc = true;
        spec.detour = true;
        std::string said;
        try {
            (void)circle(spec);
        } catch (const InfeasibleError& error) {
            said = error.what();
        }
        CHECK_MESSAGE(said.find("deadlock: 4 ports pause each other in a circle") != std::string::npos, said);
        for (const char* port : {"spine 0 to leaf 0", "leaf 0 to spine 1", "spine 1 to leaf 1", "leaf 1 to spine 0"}) {
            CHECK_MESSAGE(said.find(port) != std::string::npos, said);
        }
        // The same paths without pauses bring everything home.
        spec.queues.pfc = false;
        CHECK(circle(spec).last > 0);
    }
}

TEST_CASE("packet faults: a watchdog opens a circle of pauses") {
    PacketSpec spec;
    spec.transport = test::transport("{kind: roce, dcqcn: false, recovery: selective}");
    spec.queues.pfc = true;
    spec.detour = true;
    spec.queues.detection = 2e-3;
    spec.queues.restoration = 1e-3;
    for (const StormAction action : {StormAction::drop, StormAction::forward}) {
        CAPTURE(action == StormAction::drop);
        spec.queues.watchdog = action;
        const Outcome out = circle(spec);
        CHECK(out.statistics.storms > 0);
        CHECK((out.statistics.storm_drops > 0) == (action == StormAction::drop));
        CHECK(out.last > 2'000'000'000);  // nothing moves before the detection time
        CHECK(out.last < 100'000'000'000);
    }
}

TEST_CASE("packet faults: where nothing gets through any more, a message is named long before the last retry") {
    const Fabric fabric(test::hosts(32, 8, 8, 50e9, 500e-9));
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.transport.policy.choose("window");
    spec.transport.retries = 200;
    spec.bit_error_rate = 1e-3;  // no full packet survives
    const auto run = [&](std::uint32_t a_host) {
        Network network(fabric, spec, 1);
        std::size_t count = 0;
        for (std::uint32_t i = 0; i < a_host * 32; ++i) {
            network.send({GpuId(i % 32), GpuId((i + 9) % 32), 64 * kMtu, 0, count++});
        }
        (void)test::finish(network, count);
    };
    CHECK_THROWS_WITH_AS(run(400), doctest::Contains("from GPU 0 to GPU 9 can never finish: 8 million events"),
                         InfeasibleError);
    // A few flows reach the end of their retries instead.
    CHECK_THROWS_WITH_AS(run(1), doctest::Contains("can never finish: 200 timeouts in a row"), InfeasibleError);
}

TEST_CASE("packet faults: credits lost with a link come back with the next one") {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.transport.policy.choose("receiver-driven");
    spec.reroute_delay = 1e-3;
    const auto clean = one(fat_tree(), spec, 7, 4096 * kMtu, {});
    const auto flapped = one(fat_tree(), spec, 7, 4096 * kMtu,
                             {{20e-6, {FaultKind::link_down, {Place::What::nic, 0, 0}}},
                              {25e-6, {FaultKind::link_down, {Place::What::nic, 0, 0}}, true}});
    CHECK(flapped.statistics.drops > 20);
    CHECK(flapped.last < clean.last + 60'000'000);
}
