// Topologies: paths against breadth-first search, packets and flows on the same links, closed forms of what they carry.

#include "sim/base/random.hpp"
#include "sim/network/topology/routed.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/packets.hpp"
#include "tests/support/scenarios.hpp"
#include "topologies/graph.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <map>

using namespace orrery;

namespace {

Scenario network_for(const std::string& cluster, const std::string& traffic, const std::string& settings) {
    return test::scenario(fmt::format("orrery: 1\nkind: network\ncluster: {{{}}}\ntraffic: {}\nnetwork: {}\n", cluster,
                                      traffic, settings));
}

Fabric fabric_of(const std::string& cluster) {
    const Scenario s = network_for(cluster, "{pattern: ring, size: 1 MB}", "{fidelity: packet}");
    return Fabric(shape_of(s.cluster, s.cluster_mark));
}

const std::vector<std::string>& clusters() {
    static const std::vector<std::string> kClusters = {
        "hosts: 12, fabric: {kind: single-switch, link: 100 Gbps}",
        "hosts: 12, fabric: {kind: fully-connected, neighbour_link: 10 GB/s}",
        "hosts: 12, fabric: {kind: torus, shape: 4x3, neighbour_link: 10 GB/s}",
        "hosts: 60, fabric: {kind: torus, shape: 4x3x5, neighbour_link: 10 GB/s}",
        "hosts: 24, fabric: {kind: torus, shape: 2x3x4, wrap: false, neighbour_link: 10 GB/s}",
        "hosts: 48, fabric: {kind: multi-level, levels: [{kind: ring, size: 4, link: 50 GB/s}, {kind: fully-connected, "
        "size: 3, "
        "link: 20 GB/s}, {kind: switch, size: 4, link: 10 GB/s}]}",
        "hosts: 40, fabric: {kind: graph, link: 10 GB/s, switches: [{name: a, nodes: 10}, {name: b, nodes: 20}, {name: "
        "c}, "
        "{name: d}, {name: e, nodes: 10}], links: [{from: a, to: c, link: 10 GB/s}, {from: a, to: d, link: 10 GB/s}, "
        "{from: c, "
        "to: b, link: 20 GB/s}, {from: d, to: b, link: 20 GB/s, count: 2}, {from: b, to: e, link: 10 GB/s}]}"};
    return kClusters;
}

double slowest(const Scenario& scenario) {
    return run_scenario(scenario, test::model_cache(), {}).summary.find("fct_s.max")->value;
}

}  // namespace

TEST_CASE("routes of every topology are shortest paths, and a spread flow puts a whole flow on each level of them") {
    for (const std::string& cluster : clusters()) {
        CAPTURE(cluster);
        const Fabric fabric = fabric_of(cluster);
        std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> ends;
        for (const Fabric::Link& link : fabric.links()) {
            if (link.resource.value() >= fabric.first_switch_link()) {
                ends[link.resource.value()] = {link.from, link.to};
            }
        }
        RandomStream random(1, "pairs");
        for (int k = 0; k < 40; ++k) {
            const GpuId from(static_cast<std::uint32_t>(random.below(fabric.gpus())));
            const GpuId to(static_cast<std::uint32_t>(random.below(fabric.gpus())));
            if (from == to) {
                continue;
            }
            const auto distance = distances_from(fabric, from);
            // NIC out and in stand for the hops between GPU and switch.
            const Route hashed = fabric.route(from, to, PathChoice::ecmp, random.next());
            CHECK(hashed.resources().size() + 2 == distance[to.value()]);
            std::uint32_t at = std::numeric_limits<std::uint32_t>::max();
            for (const ResourceId link : hashed.resources().subspan(1, hashed.resources().size() - 2)) {
                CHECK((at == std::numeric_limits<std::uint32_t>::max() || ends.at(link.value()).first == at));
                at = ends.at(link.value()).second;
            }
            const Route spread = fabric.route(from, to, PathChoice::spray, 0);
            double shares = 0;
            for (std::size_t i = 0; i < spread.resources().size(); ++i) {
                shares += spread.share(i);
            }
            CHECK(shares == doctest::Approx(static_cast<double>(hashed.resources().size())).epsilon(1e-12));
        }
    }
}

TEST_CASE("a flow alone takes its closed form at analytic, fluid and packet fidelity on every topology") {
    for (const std::string& cluster : clusters()) {
        CAPTURE(cluster);
        const std::string shift = "{pattern: shift, shift: 1, size: 10 MB}";
        const double fluid = slowest(network_for(cluster, shift, "{fidelity: fluid, paths: ecmp}"));
        CHECK(fluid > 0);
        CHECK(slowest(network_for(cluster, shift, "{fidelity: analytic, paths: ecmp}")) >= fluid * (1 - 1e-9));
        const double packets = slowest(
            network_for(cluster, shift, "{fidelity: packet, paths: ecmp, header: 1 B, transport: {kind: ideal}}"));
        CHECK(packets == doctest::Approx(fluid).epsilon(0.05));
    }
}

TEST_CASE("all-to-all on a torus of even rings takes what its busiest dimension carries") {
    // Each ring of n carries n/4 of the distance a node's bytes go on average over two links out: S n/8 on each link, of the
    // nodes^2 pairs' bytes. With k dimensions of n, a node sends S to each of N = n^k nodes.
    for (const auto& [shape, n, nodes] : {std::tuple{"4x4", 4.0, 16.0}, {"4x4x4", 4.0, 64.0}, {"6x6", 6.0, 36.0}}) {
        const Scenario s =
            network_for(fmt::format("hosts: {}, fabric: {{kind: torus, shape: {}, link: 1000 GB/s, neighbour_link: 10 "
                                    "GB/s, neighbour_latency: 0 ns, latency: 0 ns}}",
                                    static_cast<int>(nodes), shape),
                        "{pattern: all-to-all, size: 1 MB}", "{fidelity: fluid}");
        CHECK(slowest(s) == doctest::Approx(nodes * n / 8 * 1e6 / 10e9).epsilon(1e-9));
    }
    // A mesh has its bisection: n/2 x n/2 of a line's pairs cross its middle link, each way.
    const Scenario mesh = network_for(
        "hosts: 16, fabric: {kind: torus, shape: 4x4, wrap: false, link: 1000 GB/s, neighbour_link: 10 GB/s, "
        "neighbour_latency: "
        "0 ns, latency: 0 ns}",
        "{pattern: all-to-all, size: 1 MB}", "{fidelity: fluid}");
    CHECK(slowest(mesh) == doctest::Approx(16 * 4 / 4 * 1e6 / 10e9).epsilon(1e-9));
}

TEST_CASE("a dragonfly's groups exchange what their links carry: minimal over one, Valiant over all others") {
    // Five groups of two routers with two global links and two hosts each: one link between every two groups.
    const auto shifted = [](const char* routing, const char* fidelity) {
        return slowest(network_for(
            fmt::format(
                "hosts: 20, fabric: {{kind: dragonfly, groups: 5, routers_per_group: 2, nics_per_router: 2, "
                "global_links: 2, link: 100 GB/s, local_link: 100 GB/s, global_link: 10 GB/s, local_latency: 0 ns, "
                "global_latency: 0 ns, latency: 0 ns, routing: {}}}",
                routing),
            "{pattern: shift, shift: 4, size: 12 MB}", fidelity));
    };
    // All four hosts of a group send to the next group: 4 S over one link, or over all four links out, half of it twice.
    CHECK(shifted("minimal", "{fidelity: fluid}") == doctest::Approx(4 * 12e6 / 10e9).epsilon(1e-9));
    // A fifth of each flow goes by way of each group, of which the own and the last one mean the direct link: 2/5 x 4 S on it. Any
    // other link is the first half of a fifth of one group's flows and the second half of another's: as much.
    CHECK(shifted("valiant", "{fidelity: fluid}") == doctest::Approx(1.6 * 12e6 / 10e9).epsilon(1e-9));
    const double packets = 4 * 12e6 / 10e9;
    const char* by_packet = "{fidelity: packet, paths: oblivious, transport: {kind: multipath}}";
    CHECK(shifted("minimal", by_packet) == doctest::Approx(packets).epsilon(0.1));
    CHECK(shifted("adaptive", by_packet) < 0.8 * packets);

    // All-to-all: each of the 20 links between groups carries the bytes of 4 x 4 pairs.
    const Scenario all = network_for(
        "hosts: 20, fabric: {kind: dragonfly, groups: 5, routers_per_group: 2, nics_per_router: 2, global_links: 2, "
        "link: 1000 "
        "GB/s, local_link: 1000 GB/s, global_link: 10 GB/s, local_latency: 0 ns, global_latency: 0 ns, latency: 0 ns}",
        "{pattern: all-to-all, size: 1 MB}", "{fidelity: fluid}");
    CHECK(slowest(all) == doctest::Approx(16 * 1e6 / 10e9).epsilon(1e-9));
}

TEST_CASE("minimal paths of a dragonfly cross one link between groups and at most two inside") {
    const Fabric fabric = fabric_of(
        "hosts: 72, fabric: {kind: dragonfly, groups: 9, routers_per_group: 4, nics_per_router: 2, global_links: 4, "
        "link: 10 "
        "GB/s}");
    const auto& routed = dynamic_cast<const RoutedTopology&>(fabric.topology());
    const std::vector<SwitchLink> links = routed.links();
    for (std::uint32_t from = 0; from < 36; ++from) {
        for (std::uint32_t to = 0; to < 36; ++to) {
            std::uint32_t global = 0;
            std::uint32_t local = 0;
            for (std::uint32_t at = from; at != to;) {
                const SwitchLink& link = links[routed.next_link(at, to, 12345)];
                (link.from / 4 == link.to / 4 ? local : global) += 1;
                at = link.to;
            }
            CHECK(global == (from / 4 == to / 4 ? 0 : 1));
            CHECK(local <= 2);
        }
    }
}

TEST_CASE("rail-only: the own rail over its switch, another over the inside of the node, at every fidelity") {
    const std::string cluster = "nodes: 2, node: dgx-h100, fabric: {kind: rail-only, latency: 0 ns}";
    const Scenario s = network_for(cluster, "{pattern: ring, size: 1 MB}", "{fidelity: fluid}");
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    const Route same = fabric.route(GpuId(3), GpuId(11), PathChoice::spray, 0);
    const Route other = fabric.route(GpuId(3), GpuId(12), PathChoice::spray, 0);
    CHECK(other.resources().size() == same.resources().size() + 2);
    CHECK(fabric.crossing(GpuId(3), GpuId(12)).leaving == GpuId(4));
    CHECK(fabric.resource_name(other.resources()[3]) == "NIC out 4");
    // Shifted by nine, every GPU sends to another rail: NICs still carry one flow each.
    const std::string shift = "{pattern: shift, shift: 9, size: 64 MB}";
    const double fluid = slowest(network_for(cluster, shift, "{fidelity: fluid}"));
    CHECK(fluid == doctest::Approx(64e6 / 50e9).epsilon(0.05));
    const double packets =
        slowest(network_for(cluster, shift, "{fidelity: packet, header: 1 B, transport: {kind: ideal}}"));
    CHECK(packets == doctest::Approx(fluid).epsilon(0.02));
}

TEST_CASE("sites: one connection reaches its window over the round trip, several reach more, up to the link") {
    const auto seconds = [](const std::string& extra, const std::string& more) {
        return slowest(
            network_for("hosts: 2, fabric: {kind: sites, link: 100 Gbps, latency: 0 ns, sites: [{name: a, nodes: 1}, "
                        "{name: b, nodes: 1}], "
                        "wan: [{from: a, to: b, link: 10 Gbps, latency: 25 ms" +
                            extra + "}]" + more + "}",
                        "{pattern: incast, size: 100 MB}", "{fidelity: fluid}"));
    };
    CHECK(seconds("", "") == doctest::Approx(0.025 + 100e6 / 1.25e9).epsilon(1e-9));
    CHECK(seconds(", window: 1 MB", "") == doctest::Approx(0.025 + 100e6 / (1e6 / 0.05)).epsilon(1e-9));
    CHECK(seconds(", window: 1 MB", ", connections: 16") ==
          doctest::Approx(0.025 + 100e6 / (16e6 / 0.05)).epsilon(1e-9));
    CHECK(seconds(", window: 1 MB", ", connections: 128") == doctest::Approx(0.025 + 100e6 / 1.25e9).epsilon(1e-9));
    CHECK(seconds(", loss: 0.01", "") ==
          doctest::Approx(0.025 + 100e6 / (1460 / 0.05 * std::sqrt(1.5 / 0.01))).epsilon(1e-9));
}

TEST_CASE("sites: connections that start slowly need log2(1 + b / W0) round trips for what b / W of them would carry") {
    const auto seconds = [](const std::string& size, const std::string& more) {
        return slowest(
            network_for("hosts: 2, fabric: {kind: sites, link: 100 Gbps, latency: 0 ns, sites: [{name: a, nodes: 1}, "
                        "{name: b, nodes: 1}], "
                        "wan: [{from: a, to: b, link: 10 Gbps, latency: 25 ms, window: 1 MB}], initial_window: 10 kB" +
                            more + "}",
                        "{pattern: incast, size: " + size + "}", "{fidelity: fluid}"));
    };
    const double window = 1e6 / 0.05;  // B/s at the full window
    const auto start = [](double bytes, double full) { return 0.05 * (std::log2(1 + bytes / 10e3) - bytes / full); };
    CHECK(seconds("100 MB", "") == doctest::Approx(0.025 + start(990e3, 1e6) + 100e6 / window).epsilon(1e-9));
    CHECK(seconds("150 kB", "") == doctest::Approx(0.025 + 0.05 * 4).epsilon(1e-9));
    CHECK(seconds("100 MB", ", connections: 10") ==
          doctest::Approx(0.025 + start(990e3, 1e6) + 100e6 / (10 * window)).epsilon(1e-9));
    // A hundred connections grow to their share of the link alone: 625 kB under way each.
    CHECK(seconds("100 MB", ", connections: 100") ==
          doctest::Approx(0.025 + start(615e3, 625e3) + 100e6 / 1.25e9).epsilon(1e-9));
    CHECK(test::refusal("orrery: 1\nkind: network\ncluster: {hosts: 2, fabric: {kind: sites, link: 1 GB/s, sites: "
                        "[{name: a, nodes: 2}], "
                        "initial_window: 10 kB}}\ntraffic: {pattern: incast, size: 1 MB}\n")
              .find("initial_window needs a window") != std::string::npos);
}

TEST_CASE("16,384 devices of every topology build in under a second") {
    for (const char* cluster : {"nodes: 2048, node: dgx-h100, fabric: {kind: rail-only}",
                                "nodes: 16384, node: {preset: dgx-h100, gpus: 1, nics: 1}, "
                                "fabric: {kind: single-switch}",
                                "nodes: 2048, node: dgx-h100, fabric: {kind: fully-connected}",
                                "hosts: 16384, fabric: {kind: torus, shape: 32x32x16, neighbour_link: 50 GB/s}",
                                "hosts: 16384, fabric: {kind: dragonfly, groups: 64, routers_per_group: 16, "
                                "nics_per_router: 16, global_links: 8, link: "
                                "25 GB/s}",
                                "hosts: 16384, fabric: {kind: multi-level, levels: [{kind: ring, size: 8, link: 50 "
                                "GB/s}, {kind: switch, size: 2048, "
                                "link: 10 GB/s}]}"}) {
        CAPTURE(cluster);
        const Scenario s = network_for(cluster, "{pattern: ring, size: 1 MB}", "{fidelity: fluid}");
        const auto started = std::chrono::steady_clock::now();
        const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
        CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count() < 1);
        CHECK(fabric.gpus() == 16384);
    }
}

TEST_CASE("what does not fit is refused with its line, all of it at once") {
    const auto refused = [](const std::string& cluster, const std::string& settings = "{fidelity: fluid}") {
        return test::refusal(fmt::format(
            "orrery: 1\nkind: network\ncluster: {{{}}}\ntraffic: {{pattern: ring, size: 1 MB}}\nnetwork: {}\n", cluster,
            settings));
    };
    const std::string graph = refused(
        "hosts: 4, fabric: {kind: graph, link: 1 GB/s, switches: [{name: left, nodes: 2}, {name: right, nodes: 1}, "
        "{name: far}], "
        "links: [{from: left, to: rigth, link: 1 GB/s}, {from: far, to: far, link: 1 GB/s}]}");
    CAPTURE(graph);
    CHECK(graph.find("hold 3 nodes, not 4") != std::string::npos);
    CHECK(graph.find("did you mean 'right'?") != std::string::npos);
    CHECK(graph.find("joins 'far' with itself") != std::string::npos);
    CHECK(graph.find("no path from 'left' to 'far'") != std::string::npos);
    CHECK(graph.find("no path from 'left' to 'right'") != std::string::npos);
    CHECK(refused("hosts: 4, fabric: {kind: graph, switches: [{name: a, nodes: 4}], links: [{from: a, to: b}]}")
              .find("'link'") != std::string::npos);
    CHECK(refused("hosts: 10, fabric: {kind: torus, shape: 3x3}").find("torus of 3 x 3 does not hold 10 nodes") !=
          std::string::npos);
    CHECK(refused("hosts: 9, fabric: {kind: torus, shape: 3x3}").find("have no rate") != std::string::npos);
    CHECK(refused("hosts: 9, fabric: {kind: torus, shape: 3by3, link: 1 GB/s}").find("such as 4x4x8") !=
          std::string::npos);
    CHECK(
        refused("hosts: 9, fabric: {kind: torus, shape: 3x3, link: 1 GB/s, spines: 2}").find("unknown key 'spines'") !=
        std::string::npos);
    const std::string fly =
        "hosts: 20, fabric: {kind: dragonfly, groups: 5, routers_per_group: 2, nics_per_router: 2, global_links: 2, "
        "link: 1 GB/s";
    CHECK(refused(fly + ", routing: adaptive}").find("needs network.fidelity: packet") != std::string::npos);
    CHECK(refused(fly + ", routing: adaptive}", "{fidelity: packet}").empty());
    CHECK(refused(fly + "}", "{fidelity: packet, paths: adaptive}").find("has none: take spray") != std::string::npos);
    CHECK(refused("hosts: 99, fabric: {kind: dragonfly, groups: 9, routers_per_group: 2, nics_per_router: 2, "
                  "global_links: 2, link: "
                  "1 GB/s}")
              .find("room for 36 NICs") != std::string::npos);
}

TEST_CASE("what does not fit in a fabric is said on the lines of its parts, beside what is wrong elsewhere") {
    const std::string wrong = test::refusal(
        "orrery: 1\nkind: collective\ncluster:\n  hosts: 6\n  fabric:\n    kind: graph\n    link: 100 Gbps\n"
        "    switches:\n      - {name: a, nodes: 2}\n      - {name: b, nodes: 2}\n      - {name: c, nodes: 2}\n"
        "      - {name: a, nodes: 0}\n"
        "    links:\n      - {from: a, to: b, link: 1 Gbps}\n      - {from: a, to: x, link: 1 Gbps}\n"
        "      - {from: b, to: b, link: 1 Gbps}\ncollective: {op: all-reduce, size: 1}\n");
    for (const char* part : {"test.yaml:12:9: error: switches 'a' is there twice",
                             "test.yaml:15:9: error: a link names 'x'", "test.yaml:16:9: error: a link joins 'b'",
                             "test.yaml:11:9: error: no path from 'a' to 'c'", "test.yaml:17:"}) {
        CAPTURE(wrong);
        CHECK(wrong.find(part) != std::string::npos);
    }
    // Beside links that have no rate too, and not beside what may be why it does not fit.
    const auto rates = [](const char* first) {
        return test::refusal(
            std::string("orrery: 1\nkind: collective\ncluster:\n  hosts: 4\n  fabric:\n    kind: graph\n") +
            "    link: 100 Gbps\n    switches:\n      - " + first +
            "\n      - {name: b, nodes: 1}\n      - {name: c, nodes: 1}\n    links:\n"
            "      - {from: a, to: x, link: 1 Gbps}\n      - {from: a, to: b, link: 0 Gbps}\n"
            "      - {from: b, to: a}\ncollective: {op: all-reduce, size: 1 MiB}\n");
    };
    const std::string holes = rates("{name: a, nodes: 2}");
    for (const char* part :
         {"test.yaml:14:32: error: 'link' must be between", "test.yaml:15:9: error: 'link' is missing",
          "test.yaml:13:9: error: a link names 'x'", "test.yaml:11:9: error: no path from 'a' to 'c'"}) {
        CAPTURE(holes);
        CHECK(holes.find(part) != std::string::npos);
    }
    CHECK(rates("{nam: a, nodes: 2}").find("no path") == std::string::npos);
    const std::string groups = test::refusal(
        "orrery: 1\nkind: network\ncluster:\n  groups:\n    - {name: a, nodes: 1, node: dgx-h100}\n"
        "    - {name: a, nodes: 1, node: dgx-h100}\n"
        "    - {name: b, nodes: 1, node: {preset: dgx-h100, gpus: 4}}\n  fabric:\n    rails: 3\n"
        "traffic: {pattern: shift, size: 1 MiB}\n");
    for (const char* part :
         {"test.yaml:6:7: error: group 'a' is there twice", "test.yaml:7:7: error: nodes of 'b' have 4",
          "test.yaml:9:12: error: 'fabric.rails' must divide"}) {
        CAPTURE(groups);
        CHECK(groups.find(part) != std::string::npos);
    }
}

TEST_CASE("sprayed packets load every level of a graph evenly, as flows do") {
    // Two pods of two leaves and two aggregation switches, which two core switches join; the last pod has double links.
    const std::string cluster =
        "hosts: 16, fabric: {kind: graph, link: 10 GB/s, switches: [{name: l0, nodes: 4}, {name: l1, nodes: 4}, {name: "
        "l2, nodes: 4}, {name: l3, nodes: 4}, {name: a0}, {name: a1}, {name: a2}, {name: a3}, {name: c0}, {name: c1}], "
        "links: [{from: l0, to: a0, link: 10 GB/s, count: 2}, {from: l0, to: a1, link: 10 GB/s, count: 2}, {from: l1, "
        "to: a0, link: 10 GB/s, count: 2}, "
        "{from: l1, to: a1, link: 10 GB/s, count: 2}, {from: l2, to: a2, link: 10 GB/s, count: 2}, {from: l2, to: a3, "
        "link: 10 GB/s, count: 2}, "
        "{from: l3, to: a2, link: 10 GB/s, count: 2}, {from: l3, to: a3, link: 10 GB/s, count: 2}, {from: a0, to: c0, "
        "link: 10 GB/s, count: 2}, "
        "{from: a0, to: c1, link: 10 GB/s, count: 2}, {from: a1, to: c0, link: 10 GB/s, count: 2}, {from: a1, to: c1, "
        "link: 10 GB/s, count: 2}, "
        "{from: a2, to: c0, link: 10 GB/s, count: 2}, {from: a2, to: c1, link: 10 GB/s, count: 2}, {from: a3, to: c0, "
        "link: 10 GB/s, count: 2}, "
        "{from: a3, to: c1, link: 10 GB/s, count: 2}]}";
    const Fabric fabric = fabric_of(cluster);
    packet::Network network(fabric, test::ideal("spray"), 1);
    std::size_t messages = 0;
    for (std::uint32_t from = 0; from < 16; ++from) {
        for (std::uint32_t to = 0; to < 16; ++to) {
            if (from != to) {
                network.send({GpuId(from), GpuId(to), 100 * 4096, 0, messages++});
            }
        }
    }
    (void)test::finish(network, messages);
    // Of 2 x 64 messages between pods each link at the core carries 1 in 8; within a pod 16 more from a leaf take 4 links.
    std::map<char, std::pair<double, double>> span;
    for (const PortReport& port : network.report().ports) {
        if (port.name.starts_with("link ") && port.bytes > 0) {
            const bool core = port.name.find('c') != std::string::npos;
            auto [entry, fresh] = span.try_emplace(core ? 'c' : 'l', port.bytes, port.bytes);
            entry->second = {std::min(entry->second.first, port.bytes), std::max(entry->second.second, port.bytes)};
        }
    }
    REQUIRE(span.size() == 2);
    for (const auto& [level, bytes] : span) {
        CAPTURE(level);
        CHECK(bytes.second < 1.03 * bytes.first);
    }
}

TEST_CASE("sprayed traffic divides over the links of a graph by what leads on behind them") {
    // Behind b lie three links, behind c one: c gets a quarter, in flows and in packets.
    const std::string cluster =
        "hosts: 2, fabric: {kind: graph, link: 10 GB/s, switches: [{name: s, nodes: 1}, {name: b}, {name: c}, {name: "
        "t, "
        "nodes: 1}], links: [{from: s, to: b, link: 30 GB/s}, {from: s, to: c, link: 30 GB/s}, {from: b, to: t, link: "
        "10 GB/s, "
        "count: 3}, {from: c, to: t, link: 10 GB/s}]}";
    const Fabric fabric = fabric_of(cluster);
    const Route route = fabric.route(GpuId(0), GpuId(1), PathChoice::spray, 0);
    std::map<std::string, double> shares;
    for (std::size_t i = 0; i < route.resources().size(); ++i) {
        shares[fabric.resource_name(route.resources()[i])] = route.share(i);
    }
    CHECK(shares.at("link s to b") == doctest::Approx(0.75));
    CHECK(shares.at("link s to c") == doctest::Approx(0.25));
    CHECK(shares.at("link c to t") == doctest::Approx(0.25));
    packet::Network network(fabric, test::ideal("spray"), 1);
    network.send({GpuId(0), GpuId(1), 1000 * 4096, 0, 0});
    (void)test::finish(network, 1);
    for (const PortReport& port : network.report().ports) {
        if (port.name.starts_with("link s to")) {
            CAPTURE(port.name);
            CHECK(std::abs(static_cast<double>(port.packets) - (port.name == "link s to b" ? 750 : 250)) <= 3);
        }
    }
}
