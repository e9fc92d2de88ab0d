#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <numeric>

using namespace orrery;
using packet::Network;

namespace {

struct Outcome {
    double most_bytes;  ///< on a link between switches
    std::int64_t last;  ///< ps
};

// Every host of `leaves` leaves sends `packets` packets to a host of another leaf: a shift by one leaf.
Outcome shift(const PacketSpec& spec, std::uint32_t leaves, std::uint32_t per_leaf, std::uint32_t spines,
              std::uint64_t packets) {
    const std::uint32_t hosts = leaves * per_leaf;
    const Fabric fabric(test::hosts(hosts, per_leaf, spines, 50e9, 500e-9));
    Network network(fabric, spec, 1);
    for (std::uint32_t i = 0; i < hosts; ++i) {
        network.send({GpuId(i), GpuId((i + per_leaf) % hosts), packets * 4096, 0, i});
    }
    const auto done = test::finish(network, hosts);
    CHECK(network.conserved());
    return {network.statistics().max_link_bytes, *std::max_element(done.begin(), done.end())};
}

double flow_bytes(std::uint64_t packets) {
    return static_cast<double>(packets * 4160);
}

}  // namespace

TEST_CASE("packet paths: placed single paths put ceil(d / s) flows on the fullest link, with splitting exactly d / s") {
    struct Case {
        std::uint32_t leaves, per_leaf, spines;
    };
    for (const Case c : {Case{4, 8, 8}, {4, 8, 4}, {4, 6, 4}, {3, 4, 8}, {5, 7, 3}, {2, 16, 16}}) {
        CAPTURE(c.per_leaf);
        CAPTURE(c.spines);
        PacketSpec spec = test::ideal("planned");
        spec.paths = test::paths("{kind: planned, split: false}");
        const std::uint64_t packets = 1680;  // divides by every number of parts
        const double d = c.per_leaf;
        CHECK(shift(spec, c.leaves, c.per_leaf, c.spines, packets).most_bytes ==
              std::ceil(d / c.spines) * flow_bytes(packets));
        spec.paths = test::paths("{kind: planned}");
        CHECK(shift(spec, c.leaves, c.per_leaf, c.spines, packets).most_bytes * c.spines == d * flow_bytes(packets));
        // Ideal spraying reaches the same bound.
        CHECK(shift(test::ideal("spray"), c.leaves, c.per_leaf, c.spines, packets).most_bytes * c.spines ==
              d * flow_bytes(packets));
    }
}

TEST_CASE("packet paths: random permutations are placed without any collision") {
    RandomStream random(5, "permutation");
    for (int round = 0; round < 20; ++round) {
        const std::uint32_t hosts = 64;
        const Fabric fabric(test::hosts(hosts, 8, 8, 50e9, 500e-9));
        std::vector<std::uint32_t> to(hosts);
        std::iota(to.begin(), to.end(), 0U);
        random.shuffle(to);
        Network network(fabric, test::ideal("planned"), 1);
        std::map<std::uint32_t, std::uint32_t> leaving;
        std::map<std::uint32_t, std::uint32_t> entering;
        std::uint32_t degree = 0;
        std::size_t messages = 0;
        for (std::uint32_t i = 0; i < hosts; ++i) {
            if (to[i] != i) {
                network.send({GpuId(i), GpuId(to[i]), 56 * 15 * 4096, 0, messages++});
            }
            if (to[i] / 8 != i / 8) {
                degree = std::max({degree, ++leaving[i / 8], ++entering[to[i] / 8]});
            }
        }
        (void)test::finish(network, messages);
        CHECK(network.statistics().max_link_bytes <= degree / 8.0 * flow_bytes(56 * 15) * (1 + 1e-12));
    }
}

TEST_CASE("packet paths: hashed flows collide, every kind of spraying comes near to placed paths") {
    const auto last = [&](const std::string& paths) {
        PacketSpec spec;
        spec.paths = test::paths(paths);
        spec.queues.mark_low = 54080;
        spec.queues.mark_high = 212160;
        return static_cast<double>(shift(spec, 8, 16, 16, 512).last);
    };
    const double placed = last("{kind: planned}");
    CHECK(last("{kind: ecmp}") > 2.5 * placed);
    CHECK(last("{kind: flowlet}") > 1.5 * placed);
    for (const char* kind : {"{kind: spray}", "{kind: round-robin}", "{kind: adaptive}"}) {
        CAPTURE(kind);
        CHECK(last(kind) < 1.1 * placed);
    }
    CHECK(last("{kind: recycled}") < 1.4 * placed);  // it starts at random and learns from marks
    CHECK(last("{kind: oblivious, entropies: 4096}") < 1.2 * placed);
    CHECK(last("{kind: oblivious, entropies: 64}") < 1.7 * placed);
    CHECK(last("{kind: oblivious, entropies: 1}") > 2 * placed);
}

TEST_CASE("packet paths: the same hash decides in fluid and packet simulations") {
    const Fabric fabric(test::hosts(32, 8, 8, 50e9, 500e-9));
    Network network(fabric, test::ideal(), 1);
    std::map<std::uint32_t, double> expected;
    for (std::uint32_t i = 0; i < 32; ++i) {
        const std::uint32_t to = (i + 11) % 32;
        network.send({GpuId(i), GpuId(to), 4096, 0, i});
        const Route route = fabric.route(GpuId(i), GpuId(to), PathChoice::ecmp, (std::uint64_t{i} << 32) | to);
        if (route.resources().size() == 4) {
            expected[route.resources()[1].value()] += 4160;
        }
    }
    (void)test::finish(network, 32);
    double most = 0;
    for (const auto& [link, bytes] : expected) {
        most = std::max(most, bytes);
    }
    CHECK(network.statistics().max_link_bytes >= most);
    std::size_t used = 0;
    for (const PortReport& port : network.report().ports) {
        used += port.name.rfind("leaf", 0) == 0 && port.name.find("to spine") != std::string::npos && port.bytes > 0;
    }
    CHECK(used == expected.size());
}

TEST_CASE("packet paths: subflows split a message and finish it together") {
    const Fabric fabric(test::hosts(32, 8, 8, 50e9, 500e-9));
    PacketSpec spec = test::ideal();
    spec.paths.subflows = 7;
    Network network(fabric, spec, 1);
    network.send({GpuId(0), GpuId(20), 100 * 4096 + 5, 0, 0});
    network.send({GpuId(1), GpuId(21), 3, 0, 1});
    (void)test::finish(network, 2);
    CHECK(network.payload_delivered() == 100 * 4096 + 8);
    CHECK(network.statistics().packets_delivered == 102);
}

namespace {

/// A path choice with one flow, among 16 spines.
struct Chooser {
    std::unique_ptr<packet::PathChooser> of;
    packet::FlowPath path;

    explicit Chooser(const std::string& text) : of(test::paths(text).policy.make()) {
        of->begin({4, 16, 1});
        of->start(0);
        path.hash = 12345;
    }
    std::uint32_t pick(std::int64_t now = 0) { return of->pick(0, path, now); }
    void heard(std::uint32_t entropy, packet::PathNews news, std::int64_t now = 0) { of->heard(0, entropy, news, now); }
};

}  // namespace

TEST_CASE("REPS: an entropy that came back unmarked is sent once more, the oldest of eight first") {
    Chooser reps("{kind: reps}");
    for (std::uint32_t i = 1; i <= 10; ++i) {
        reps.heard(i, packet::PathNews::good);
    }
    reps.heard(99, packet::PathNews::marked);
    reps.heard(98, packet::PathNews::trimmed);
    for (std::uint32_t i = 3; i <= 10; ++i) {
        CHECK(reps.pick() == i);
    }
    CHECK(reps.pick() > 10);  // fresh ones
    CHECK(reps.pick() != reps.pick());
    reps.heard(7, packet::PathNews::trimmed_last);  // its path is not to blame
    CHECK(reps.pick() == 7);
}

TEST_CASE("REPS: after a timeout the entropies heard of go round until the freeze ends, then sixteen packets explore") {
    Chooser reps("{kind: reps, reps_freeze: 10 us}");
    for (std::uint32_t i = 1; i <= 3; ++i) {
        reps.heard(i, packet::PathNews::good);
    }
    CHECK(reps.pick() == 1);
    reps.heard(0, packet::PathNews::timed_out, 1'000'000);
    for (const std::uint32_t expected : {1U, 2U, 3U, 1U, 2U, 3U}) {
        CHECK(reps.pick() == expected);
    }
    reps.heard(4, packet::PathNews::good, 11'000'000);
    CHECK(reps.pick() == 1);
    CHECK(reps.pick() == 2);
    CHECK(reps.pick() == 3);
    CHECK(reps.pick() == 4);
    reps.heard(5, packet::PathNews::good, 11'000'001);
    for (int i = 0; i < 16; ++i) {
        CHECK(reps.pick() > 5);
    }
    CHECK(reps.pick() == 5);
    CHECK(reps.pick() > 5);
}

TEST_CASE("bitmap: each entropy once a pass, and one that was trimmed is passed over four times") {
    Chooser bitmap("{kind: bitmap, bitmap_paths: 8}");
    std::map<std::uint32_t, int> sent;
    for (int i = 0; i < 80; ++i) {
        ++sent[bitmap.pick()];
    }
    CHECK(sent.size() == 8);
    for (const auto& [entropy, times] : sent) {
        CHECK(times == 10);
    }
    const std::uint32_t bad = sent.begin()->first;
    bitmap.heard(bad, packet::PathNews::trimmed);
    bitmap.heard(sent.rbegin()->first, packet::PathNews::good);
    sent.clear();
    for (int i = 0; i < 28; ++i) {
        ++sent[bitmap.pick()];
    }
    CHECK(sent.count(bad) == 0);
    for (int i = 0; i < 80; ++i) {
        ++sent[bitmap.pick()];
    }
    CHECK(sent[bad] == 10);
}

TEST_CASE("mixed: entropies that came back unmarked before those of the bitmap") {
    Chooser mixed("{kind: mixed, bitmap_paths: 8}");
    const std::uint32_t first = mixed.pick();
    mixed.heard(first, packet::PathNews::good);
    CHECK(mixed.pick() == first);
    CHECK(mixed.pick() != first);
}

TEST_CASE("clocked: an acknowledgement's path is used by what the window has room for, two packets at most") {
    Chooser clocked("{kind: clocked, clocked_probe: 0}");
    CHECK(clocked.pick() != clocked.pick());  // the first window: at random
    clocked.of->clock(0, 7, 1, 1);
    CHECK(clocked.pick() == 7);
    CHECK(clocked.pick() > 7);
    clocked.of->clock(0, 7, 1, 0);
    CHECK(clocked.pick() > 7);
    clocked.of->clock(0, 5, 1, 9);
    clocked.of->clock(0, 6, 1, 2);  // for the two before
    clocked.of->clock(0, 7, 1, 3);
    for (const std::uint32_t expected : {5U, 5U, 7U}) {
        CHECK(clocked.pick() == expected);
    }
    CHECK(clocked.pick() > 7);
    Chooser probes("{kind: clocked, clocked_probe: 0.01}");
    int fresh = 0;
    for (int i = 0; i < 100'000; ++i) {
        probes.of->clock(0, 7, 1, 1);
        fresh += probes.pick() == 7 ? 0 : 1;
    }
    CHECK(fresh == doctest::Approx(1000).epsilon(0.1));
}

TEST_CASE("windowed: entropies hold the number of their path") {
    Chooser windowed("{kind: windowed}");
    std::map<std::uint32_t, int> seen;
    for (std::uint32_t number = 0; number < 64; ++number) {
        windowed.path.sprayed = number;
        const std::uint32_t entropy = windowed.pick();
        CHECK(packet::numbered_path(entropy) == number % packet::kMostPaths);
        CHECK(windowed.pick() == entropy);
        ++seen[entropy];
    }
    CHECK(seen.size() == 64);
}

TEST_CASE("packet paths: REPS, bitmap and mixed come near to placed paths, and leave links that went down") {
    const Fabric fabric(test::hosts(64, 8, 8, 50e9, 500e-9));
    const auto last = [&](const std::string& paths, bool down) {
        PacketSpec spec;
        spec.paths = test::paths(paths);
        spec.transport.policy.choose("nscc");
        spec.queues.size = 266240;
        spec.queues.trim = true;
        spec.queues.mark_low = 54080;
        spec.queues.mark_high = 212160;
        spec.link_events = "given directly";
        spec.reroute_delay = 10e-3;
        Network network(fabric, spec, 1);
        if (down) {
            network.add_link_event({20e-6, {FaultKind::link_down, {Place::What::leaf_spine, 0, 0}}});
        }
        for (std::uint32_t i = 0; i < 64; ++i) {
            network.send({GpuId(i), GpuId((i + 8) % 64), 1024 * 4096, 0, i});
        }
        const auto done = test::finish(network, 64);
        CHECK(network.conserved());
        return static_cast<double>(*std::max_element(done.begin(), done.end()));
    };
    const double placed = last("{kind: planned}", false);
    for (const char* kind : {"{kind: reps}", "{kind: bitmap}", "{kind: mixed}"}) {
        CAPTURE(kind);
        CHECK(last(kind, false) < 1.5 * placed);
        CHECK(last(kind, true) < 8 * placed);
    }
    CHECK(last("{kind: reps}", true) < 0.7 * last("{kind: oblivious, entropies: 64}", true));
}
