// Hashed paths: seeds, messages, weights by rate, and switches that leave their own dead links out at once.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

using namespace orrery;
using packet::Network;

namespace {

constexpr std::uint64_t kMtu = 4096;
constexpr double kFull = 4160 * 20;  // ps on a link

/// Packets that each leaf sent to each spine.
std::map<std::string, std::uint64_t> sent_up(const Network& network) {
    std::map<std::string, std::uint64_t> out;
    for (const PortReport& port : network.report().ports) {
        if (port.name.rfind("leaf", 0) == 0 && port.name.find("to spine") != std::string::npos && port.packets > 0) {
            out[port.name] = port.packets;
        }
    }
    return out;
}

PacketSpec with_paths(const std::string& paths) {
    PacketSpec spec;
    spec.paths = test::paths(paths);
    spec.transport = test::transport("{kind: window, window: 1 MB}");
    return spec;
}

std::uint32_t spine_of(std::uint32_t from, std::uint32_t to, std::uint32_t spines) {
    return static_cast<std::uint32_t>(mix64((std::uint64_t{from} << 32) | to) % spines);
}

}  // namespace

TEST_CASE(
    "routing: another seed, other hashes: two flows over s spines collide with one seed in s, at every fidelity") {
    CHECK(hash_salt(1) == 0);
    FabricShape shape = test::hosts(16, 8, 4, 50e9, 500e-9);
    const int seeds = 400;
    int collided = 0;
    for (int seed = 1; seed <= seeds; ++seed) {
        shape.hash_salt = hash_salt(static_cast<std::uint64_t>(seed));
        const Fabric fabric(shape);
        const auto up = [&](std::uint32_t from, std::uint32_t to) {
            return fabric.route(GpuId(from), GpuId(to), PathChoice::ecmp, (std::uint64_t{from} << 32) | to)
                .resources()[1];
        };
        const bool together = up(0, 8) == up(1, 9);
        collided += together ? 1 : 0;
        if (seed <= 20) {
            Network network(fabric, with_paths("{kind: ecmp}"), 1);
            network.send({GpuId(0), GpuId(8), 10 * kMtu, 0, 0});
            network.send({GpuId(1), GpuId(9), 10 * kMtu, 0, 1});
            (void)test::finish(network, 2);
            CHECK(sent_up(network).size() == (together ? 1 : 2));
            // Leaf 0's links up are the first between switches.
            const std::uint32_t spine = std::min(up(0, 8), up(1, 9)).value() - fabric.first_switch_link();
            CHECK(sent_up(network).begin()->first == "leaf 0 to spine " + std::to_string(spine));
        }
    }
    const double deviation = std::sqrt(seeds * 0.25 * 0.75);
    CHECK(std::abs(collided - seeds / 4.0) < 3.5 * deviation);
}

TEST_CASE("routing: a hash of each pair keeps its messages on one path, a hash of each message spreads them") {
    const Fabric fabric(test::hosts(16, 8, 4, 50e9, 500e-9));
    const auto used = [&](const std::string& paths) {
        Network network(fabric, with_paths(paths), 1);
        for (std::uint32_t i = 0; i < 400; ++i) {
            network.send({GpuId(0), GpuId(8), kMtu, 0, i});
        }
        (void)test::finish(network, 400);
        return sent_up(network);
    };
    CHECK(used("{kind: ecmp}").size() == 1);
    const auto spread = used("{kind: ecmp, hash_by: message}");
    CHECK(spread.size() == 4);
    for (const auto& [port, packets] : spread) {
        CHECK(std::abs(static_cast<double>(packets) - 100) < 3.5 * std::sqrt(400 * 0.25 * 0.75));
    }
}

TEST_CASE("routing: weighted hashes follow the rates of links, up and down, once routing knows them") {
    const Fabric fabric(test::hosts(16, 8, 4, 50e9, 500e-9));
    const std::uint32_t messages = 7000;
    const auto shares = [&](const std::string& paths, const std::vector<TimedFault>& events) {
        PacketSpec spec = with_paths(paths);
        spec.transport.timeout = 0.1;  // packets that only wait are not sent twice
        spec.link_events = "given directly";
        spec.reroute_delay = 1e-6;
        Network network(fabric, spec, 1);
        for (const TimedFault& event : events) {
            network.add_link_event(event);
        }
        network.run(2'000'000);
        network.advance(2'000'000);
        for (std::uint32_t i = 0; i < messages; ++i) {
            network.send({GpuId(i % 8), GpuId(8 + i % 8), kMtu, 0, i});
        }
        (void)test::finish(network, messages);
        std::vector<double> out(4);
        for (const auto& [port, packets] : sent_up(network)) {
            out[static_cast<std::size_t>(port.back() - '0')] += static_cast<double>(packets) / messages;
        }
        return out;
    };
    const auto is = [&](const std::vector<double>& found, const std::vector<double>& expected) {
        for (std::size_t spine = 0; spine < 4; ++spine) {
            const double p = expected[spine];
            CHECK(std::abs(found[spine] - p) <= 3.5 * std::sqrt(p * (1 - p) / messages));
        }
    };
    const TimedFault half_up{0, {FaultKind::degraded, {Place::What::leaf_spine, 0, 0}, 0.5}};
    const TimedFault quarter_down{0, {FaultKind::degraded, {Place::What::leaf_spine, 1, 2}, 0.25}};
    const TimedFault dead{0, {FaultKind::link_down, {Place::What::leaf_spine, 1, 3}}};
    const std::string weighted = "{kind: ecmp, hash_by: message, weighted: true}";
    is(shares("{kind: ecmp, hash_by: message}", {half_up}), {0.25, 0.25, 0.25, 0.25});
    is(shares(weighted, {}), {0.25, 0.25, 0.25, 0.25});
    is(shares(weighted, {half_up}), {1 / 7.0, 2 / 7.0, 2 / 7.0, 2 / 7.0});
    is(shares(weighted, {half_up, quarter_down}), {0.5 / 2.75, 1 / 2.75, 0.25 / 2.75, 1 / 2.75});
    is(shares(weighted, {half_up, quarter_down, dead}), {0.5 / 1.75, 1 / 1.75, 0.25 / 1.75, 0});
}

TEST_CASE(
    "routing: a switch that leaves a dead link of its own out at once loses only what is on it and waits for it") {
    FabricShape pods = test::hosts(8, 2, 2, 50e9, 500e-9);
    pods.kind = FabricKind::fat_tree;
    pods.leaf_groups_per_pod = 2;
    pods.cores_per_spine = 2;
    const std::uint64_t over_pods = mix64(std::uint64_t{7});
    struct Case {
        FabricShape shape;
        std::uint32_t to;
        TimedFault event;
        std::string port;  // at the dead link, in the direction of the data
        bool helps;
    };
    const std::uint32_t spine = spine_of(0, 8, 4);
    const auto core = static_cast<std::uint32_t>((over_pods >> 32) % 2);
    const auto of_pods = static_cast<std::uint32_t>(over_pods % 2);
    const std::vector<Case> cases = {
        {test::hosts(16, 8, 4, 50e9, 500e-9),
         8,
         {20e-6, {FaultKind::link_down, {Place::What::leaf_spine, 0, spine}}},
         "leaf 0 to spine " + std::to_string(spine),
         true},
        // The link down to the receiver's leaf is the spine's only one.
        {test::hosts(16, 8, 4, 50e9, 500e-9),
         8,
         {20e-6, {FaultKind::link_down, {Place::What::leaf_spine, 1, spine}}},
         "spine " + std::to_string(spine) + " to leaf 1",
         false},
        {pods,
         7,
         {20e-6, {FaultKind::link_down, {Place::What::spine_core, of_pods, core}}},
         "spine " + std::to_string(of_pods) + " to core " + std::to_string(core),
         true},
    };
    for (const Case& c : cases) {
        CAPTURE(c.port);
        const Fabric fabric(c.shape);
        // Acknowledgements that come back over the dead link are lost in any case, so that all data is sent without news.
        const auto drops = [&](bool failover) {
            PacketSpec spec = with_paths("{kind: ecmp}");
            spec.transport = test::transport("{kind: window, window: 100 MB, timeout: 5 ms, recovery: selective}");
            spec.link_events = "given directly";
            spec.reroute_delay = 1e-3;
            spec.failover = failover;
            Network network(fabric, spec, 1);
            network.add_link_event(c.event);
            network.send({GpuId(0), GpuId(c.to), 2000 * kMtu, 0, 0});
            (void)test::finish(network, 1);
            CHECK(network.conserved());
            double out = -1;
            for (const PortReport& port : network.report().ports) {
                out = port.name == c.port ? static_cast<double>(port.drops) : out;
            }
            return out;
        };
        const double sent_after = 2000 - 20e6 / kFull;
        CHECK(drops(false) >= sent_after - 10);
        if (c.helps) {
            // A latency's worth of packets is on the link, and one is being sent.
            CHECK(drops(true) <= std::ceil(500e3 / kFull) + 1);
            CHECK(drops(true) > 0);
        } else {
            CHECK(drops(true) == drops(false));
        }
    }
}
