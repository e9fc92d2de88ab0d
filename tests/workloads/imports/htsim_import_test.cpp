// Topology files of htsim, against the fabrics that they describe.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/imports/importer.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

Imported imported(const std::string& text) {
    return import_file("htsim", ImportInput::of_bytes("some.topo", text));
}

Summary run_text(const std::string& text, const std::string& more = "") {
    const Scenario s = read_scenario(parse_yaml(text + more, "imported.yaml"), "imported", data());
    return run_scenario(s, model_cache(), {}).summary;
}

std::string refused(const std::string& text) {
    return problems_when([&] { return imported(text); });
}

// All metrics, to the last bit.
std::string metrics_of(const Summary& summary) {
    std::string out;
    for (const Metric& metric : summary.metrics) {
        out += fmt::format("{} {:a}\n", metric.name, metric.value);
    }
    return out;
}

constexpr const char* kTwoTiers = R"(# four leaves of eight hosts
nodes 32
TIERS 2
Podsize 32

Tier 0
Downlink_speed_Gbps 100
Radix_Down 8
Radix_Up 2
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Oversubscribed 2

Tier 1   # twice as fast
Downlink_speed_Gbps 200
Radix_Down 4
Downlink_Latency_ns 1000
Switch_Latency_ns 0
)";
constexpr const char* kSameTwo =
    "orrery: 1\nkind: network\ncluster: {hosts: 32, fabric: {kind: leaf-spine, hosts_per_leaf: 8, spines: 2, link: 100 "
    "Gbps,\n"
    "  oversubscription: 2, latency: 1 us}}\ntraffic: {pattern: permutation, size: 16 MiB}\n";

constexpr const char* kThreeTiers = R"(Nodes 64
Tiers 3
Podsize 16

Tier 0
Downlink_speed_Gbps 400
Radix_Down 4
Radix_Up 2
Downlink_Latency_ns 500
Switch_Latency_ns 200
Oversubscribed 2

Tier 1
Downlink_speed_Gbps 400
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 400
Switch_Latency_ns 200

Tier 2
Downlink_speed_Gbps 400
Radix_Down 4
Downlink_Latency_ns 400
Switch_Latency_ns 200
)";
constexpr const char* kSameThree =
    "orrery: 1\nkind: network\ncluster: {hosts: 64, fabric: {kind: fat-tree, hosts_per_leaf: 4, leaf_groups_per_pod: "
    "4, spines: 2,\n"
    "  cores_per_spine: 4, link: 400 Gbps, oversubscription: 2, core_oversubscription: 1, latency: 600 ns}}\n"
    "traffic: {pattern: permutation, size: 16 MiB}\n";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    const std::size_t at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), by);
}

}  // namespace

TEST_CASE(
    "topology files of two and three tiers give the times of the leaf-spine and the fat tree that they describe") {
    for (const auto& [topo, same] : {std::pair{kTwoTiers, kSameTwo}, {kThreeTiers, kSameThree}}) {
        const Imported made = imported(topo);
        for (const char* network : {"", "network: {fidelity: analytic}\n", "network: {paths: ecmp}\n",
                                    "network: {fidelity: packet, paths: ecmp}\n", "network: {fidelity: packet}\n"}) {
            INFO(made.text << network);
            CHECK(metrics_of(run_text(made.text, network)) == metrics_of(run_text(same, network)));
        }
    }
}

TEST_CASE("bundles and tiers of different latencies are a graph with the file's links and latencies") {
    // 600 ns on each link below the core, a millisecond above: the longest path is 4 of one and 2 of the other.
    std::string text = kThreeTiers;
    text.replace(text.rfind("Downlink_Latency_ns 400"), 23, "Downlink_Latency_ns 999800");
    const Imported made = imported(text);
    CHECK(made.text.find("kind: graph") != std::string::npos);
    const Scenario s = read_scenario(parse_yaml(made.text, "imported.yaml"), "imported", data());
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    CHECK(fabric.gpus() == 64);
    const auto latency = [&](std::uint32_t to) {
        return fabric.route(GpuId(0), GpuId(to), PathChoice::ecmp, 1).latency;
    };
    CHECK(latency(1) == doctest::Approx(2 * 600e-9));
    CHECK(latency(15) == doctest::Approx(4 * 600e-9));
    CHECK(latency(63) == doctest::Approx(4 * 600e-9 + 2 * 1e-3));
    // Two links of half the rate to each spine.
    const std::string bundled = replaced(replaced(replaced(kTwoTiers, "Radix_Up 2", "Radix_Up 4"),
                                                  "Downlink_speed_Gbps 200", "Downlink_speed_Gbps 100\nBundle 2"),
                                         "Radix_Down 4\n", "Radix_Down 8\n");
    const Imported two = imported(bundled);
    CHECK(two.text.find("count: 2") != std::string::npos);
    const Summary graph = run_text(two.text);
    CHECK(graph.find("makespan_s")->value ==
          doctest::Approx(run_text(kSameTwo).find("makespan_s")->value).epsilon(1e-9));
}

TEST_CASE("sizes of queues come along where they are equal, and are told where they are not") {
    const std::string queued =
        replaced(replaced(replaced(kTwoTiers, "Radix_Up 2", "Radix_Up 2\nQueue_Up 65536\nQueue_Down 65536"),
                          "Radix_Down 4\n", "Radix_Down 4\nQueue_Down 65536\n"),
                 "# four", "#");
    CHECK(imported(queued).text.find("queues: {size: 65536 B}") != std::string::npos);
    const Imported other = imported(replaced(queued, "Queue_Up 65536", "Queue_Up 1024"));
    CHECK(other.text.find("queues") == std::string::npos);
    CHECK_FALSE(other.notes.left_out().empty());
}

TEST_CASE("what is wrong with a topology file is told with its lines, all at once") {
    const std::string many = refused(
        "Nodes 32\nNodes 16\nTeirs 2\nPodsize x\nTier 7\nTier 0\nRadix_Dwon 8\nRadix_Up 2 3\nDownlink_speed_Gbps 0\n");
    for (const char* line :
         {"some.topo:2:1: error: 'Nodes' is there already, in line 1",
          "some.topo:3:1: error: unknown key 'Teirs' (did you mean 'Tiers'?)",
          "some.topo:4:1: error: 'Podsize' must be", "some.topo:5:1: error: 'Tier' must be a whole number from 0 to 2",
          "some.topo:7:1: error: unknown key 'Radix_Dwon' (did you mean 'Radix_Down'?)",
          "some.topo:8:1: error: a line is a key and a number, not 3 words",
          "some.topo:9:1: error: 'Downlink_speed_Gbps' must be"}) {
        CHECK_MESSAGE(many.find(line) != std::string::npos, many);
    }
    const auto wrong = [](const std::string& what, const std::string& by, const std::string& says) {
        const std::string text = refused(replaced(kThreeTiers, what, by));
        CHECK_MESSAGE(text.find(says) != std::string::npos, text);
    };
    wrong("Nodes 64", "Nodes 60", "some.topo:1:1: error: Nodes 60 is no multiple of Podsize 16");
    wrong("Podsize 16", "Podsize 8", "Radix_Down of tier 1 is 4, but 2 links lead to each of its switches");
    wrong("Oversubscribed 2", "Oversubscribed 4", "Oversubscribed is 4, but rates and ports of tier 0 make it 2");
    wrong("Tiers 3", "Tiers 2", "'Tier 2': the file has 2 tiers");
    wrong("Radix_Up 2\n", "", "tier 0 has no 'Radix_Up'");
    wrong("Tiers 3", "", "some.topo:1:1: error: 'Tiers' is missing");
    CHECK(refused("").find("'Nodes' is missing") != std::string::npos);
    CHECK(refused(replaced(kTwoTiers, "Podsize 32", "Podsize 16")).find("two tiers are one pod") != std::string::npos);
}
