// Clusters whose nodes differ, several fabrics in one cluster, and NVLink domains of several nodes.

#include "tests/support/scenarios.hpp"
#include "topologies/graph.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

// Nodes of one GPU without latencies: a flow takes its bytes over the narrowest link.
std::string node(const char* nic) {
    return fmt::format(
        "{{gpus: 1, gpu: h100-sxm, intra_bandwidth: 100 GB/s, nics: 1, nic_bandwidth: {}, nic_latency: 0 s}}", nic);
}

std::string one_fabric(const char* fabric) {
    return fmt::format(
        "{{groups: [{{name: fast, nodes: 4, node: {}}}, {{name: slow, nodes: 2, node: {}}}], fabric: {}}}",
        node("10 GB/s"), node("2 GB/s"), fabric);
}

std::string three_fabrics() {
    return fmt::format(
        "{{groups: [{{name: fast, nodes: 4, node: {}, fabric: {{nodes_per_leaf: 2, spines: 2, latency: 0 s}}}}, "
        "{{name: slow, nodes: 2, node: {}, fabric: {{kind: single-switch, latency: 0 s}}}}], "
        "fabric: {{kind: single-switch, link: 1 GB/s, latency: 0 s}}}}",
        node("10 GB/s"), node("2 GB/s"));
}

Scenario ring(const std::string& cluster, const char* traffic, const char* fidelity) {
    return test::scenario(fmt::format("orrery: 1\nkind: network\ncluster: {}\ntraffic: {}\nnetwork: {{fidelity: {}}}\n",
                                      cluster, traffic, fidelity));
}

double slowest(const Scenario& scenario) {
    return run_scenario(scenario, test::model_cache(), {}).summary.find("fct_s.max")->value;
}

double quickest(const Scenario& scenario) {
    return run_scenario(scenario, test::model_cache(), {}).summary.find("fct_s.p50")->value;
}

double all_reduce(const std::string& cluster, const char* settings, const char* fidelity) {
    const Scenario s = test::scenario(
        fmt::format("orrery: 1\nkind: collective\ncluster: {}\ncollective: {}\nnetwork: {{fidelity: {}}}\n", cluster,
                    settings, fidelity));
    return run_scenario(s, test::model_cache(), {}).summary.find("collective_time_s")->value;
}

}  // namespace

TEST_CASE("where NICs differ, a flow takes the time of the slower of its two, at every fidelity") {
    const std::string cluster = one_fabric("{nodes_per_leaf: 2, spines: 2, latency: 0 s}");
    for (const char* fidelity : {"analytic", "fluid", "packet"}) {
        CAPTURE(fidelity);
        // Around the ring: three flows among fast nodes, one into the slow ones, one among those, one out of them.
        const Scenario s = ring(cluster, "{pattern: ring, size: 100 MB}", fidelity);
        const bool packets = std::string(fidelity) == "packet";
        CHECK(slowest(s) == doctest::Approx(0.05).epsilon(packets ? 0.03 : 1e-9));
        CHECK(quickest(s) == doctest::Approx(packets ? quickest(s) : 0.03).epsilon(0.7));
    }
}

TEST_CASE("with fabrics of their own groups keep their rates inside, and meet over a further NIC of every node") {
    for (const char* fidelity : {"analytic", "fluid", "packet"}) {
        CAPTURE(fidelity);
        const double exact = std::string(fidelity) == "packet" ? 0.03 : 1e-9;
        // Both flows between groups have a NIC of 1 GB/s to themselves.
        CHECK(slowest(ring(three_fabrics(), "{pattern: ring, size: 100 MB}", fidelity)) ==
              doctest::Approx(0.1).epsilon(exact));
    }
    const Scenario s = ring(three_fabrics(), "{pattern: ring, size: 1 MB}", "fluid");
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    CHECK(inspect(fabric).reachable_gpus == 6);
    const auto narrowest = [&](std::uint32_t from, std::uint32_t to, PathChoice paths) {
        double least = 1e300;
        const Route route = fabric.route(GpuId(from), GpuId(to), paths, 7);
        for (std::size_t i = 0; i < route.resources().size(); ++i) {
            least = std::min(least, fabric.capacity(route.resources()[i]) / route.share(i));
        }
        return least;
    };
    for (const PathChoice paths : {PathChoice::spray, PathChoice::ecmp}) {
        CHECK(narrowest(0, 1, paths) == 10e9);
        CHECK(narrowest(0, 3, paths) == 10e9);
        CHECK(narrowest(4, 5, paths) == 2e9);
        CHECK(narrowest(3, 4, paths) == 1e9);
    }
    // Hashed paths join end to end: the links that packets take.
    std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> ends;
    for (const Fabric::Link& link : fabric.links()) {
        if (link.resource.value() >= fabric.first_switch_link()) {
            ends[link.resource.value()] = {link.from, link.to};
        }
    }
    const Route route = fabric.route(GpuId(0), GpuId(3), PathChoice::ecmp, 3);
    std::uint32_t at = 0;
    for (const ResourceId link : route.resources()) {
        if (ends.contains(link.value())) {
            CHECK((at == 0 || at == ends[link.value()].first));
            at = ends[link.value()].second;
        }
    }
    CHECK(at != 0);
}

TEST_CASE("a cluster of equal groups is the cluster of their nodes") {
    const std::string groups =
        "{groups: [{name: a, nodes: 2, node: dgx-h100}, {name: b, nodes: 2, node: dgx-h100}], fabric: {rails: 8, "
        "nodes_per_leaf: 2}}";
    const std::string nodes = "{nodes: 4, node: dgx-h100, fabric: {rails: 8, nodes_per_leaf: 2}}";
    for (const char* fidelity : {"analytic", "fluid", "packet"}) {
        CAPTURE(fidelity);
        const char* what = "{op: all-reduce, size: 8 MiB}";
        CHECK(all_reduce(groups, what, fidelity) == all_reduce(nodes, what, fidelity));
    }
}

TEST_CASE("an all-reduce over unlike nodes runs at the pace of the slowest NIC") {
    const std::string cluster = one_fabric("{kind: single-switch, latency: 0 s}");
    const double ring = 2.0 * 5 / 6 * 60e6;  // bytes that each of six ranks sends
    CHECK(all_reduce(cluster, "{op: all-reduce, algorithm: ring, size: 60 MB}", "fluid") ==
          doctest::Approx(ring / 2e9).epsilon(1e-9));
    // Among the fast ones alone the slow ones do not matter.
    CHECK(all_reduce(cluster, "{op: all-reduce, algorithm: ring, size: 60 MB, ranks: 4}", "fluid") ==
          doctest::Approx(2.0 * 3 / 4 * 60e6 / 10e9).epsilon(1e-9));
}

TEST_CASE("what is wrong with groups is said at once") {
    const std::string errors = test::refusal(
        "orrery: 1\nkind: network\ntraffic: {pattern: ring, size: 1 MB}\ncluster:\n  groups:\n"
        "    - {name: a, nodes: 2, node: dgx-h100, fabric: {kind: torus, shape: 3x3}}\n"
        "    - {name: a, nodes: 2, node: gb200-tray}\n");
    for (const char* text :
         {"test.yaml:5", "group 'a' is there twice", "have 4 GPUs", "no fabric of its own", "do not fill domains of 18",
          "torus of 3 x 3 does not hold 2 nodes (fabric of 'a')", "'fabric.link' is missing"}) {
        CHECK_MESSAGE(errors.find(text) != std::string::npos, text, " in: ", errors);
    }
    CHECK(test::refusal("orrery: 1\nkind: network\ntraffic: {pattern: ring, size: 1 MB}\ncluster: {nodes: 2, node: "
                        "dgx-h100, groups: [{name: a, nodes: 2, node: dgx-h100}]}\n")
              .find("either 'nodes'") != std::string::npos);
}

TEST_CASE("an NVLink domain of several nodes is one node to collectives, with NICs on its trays") {
    const char* const kTrays = "{nodes: 18, node: gb200-tray}";
    const char* const kRack = "{nodes: 1, node: gb200-nvl72}";
    for (const char* op : {"all-reduce", "all-gather", "all-to-all"}) {
        CAPTURE(op);
        const std::string what = fmt::format("{{op: {}, size: 64 MiB}}", op);
        CHECK(all_reduce(kTrays, what.c_str(), "fluid") == all_reduce(kRack, what.c_str(), "fluid"));
    }
    // Two racks: their trays' NICs carry what one rack sends to the other.
    const char* const kTwo = "{nodes: 36, node: gb200-tray, fabric: {kind: rail-only}}";
    const double seconds = all_reduce(kTwo, "{op: all-reduce, algorithm: hierarchical, size: 8 GiB}", "fluid");
    CHECK(seconds > all_reduce(kTrays, "{op: all-reduce, algorithm: hierarchical, size: 8 GiB}", "fluid"));
    const Scenario s = ring(kTwo, "{pattern: ring, size: 1 MB}", "fluid");
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    CHECK(fabric.domain_of(GpuId(71)) == 0);
    CHECK(fabric.domain_of(GpuId(72)) == 1);
    CHECK(fabric.route(GpuId(0), GpuId(71), PathChoice::spray, 0).resources().size() == 2);
    // Over another rail: first to the GPU of its own tray whose NIC is on it.
    CHECK(fabric.crossing(GpuId(0), GpuId(143)).leaving == GpuId(3));
}
