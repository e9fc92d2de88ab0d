// Times of building each topology for 16,384 devices, and of all-reduces that fold.
// Usage: orrery_bench_topologies

#include "tests/support/scenarios.hpp"

#include <fmt/format.h>

#include <chrono>
#include <functional>

using namespace orrery;

namespace {

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string scenario_of(const std::string& cluster, const std::string& rest) {
    return "orrery: 1\nkind: collective\ncluster: " + cluster + "\ncollective: {op: all-reduce, size: 1 GiB" + rest +
           "}\n";
}

// A ring of switches with chords, as from a file.
std::string graph() {
    std::string switches, links;
    for (int i = 0; i < 512; ++i) {
        switches += fmt::format("{}{{name: s{}, nodes: 32}}", i > 0 ? ", " : "", i);
        links += fmt::format("{}{{from: s{}, to: s{}, link: 100 Gbps}}, {{from: s{}, to: s{}, link: 100 Gbps}}",
                             i > 0 ? ", " : "", i, (i + 1) % 512, i, (i + 37) % 512);
    }
    return "{kind: graph, link: 100 Gbps, switches: [" + switches + "], links: [" + links + "]}";
}

void build(const char* name, const std::string& cluster) {
    const Scenario scenario = test::scenario(scenario_of(cluster, ""));
    std::size_t resources = 0;
    const double seconds = seconds_of([&] {
        const Fabric fabric(shape_of(scenario.cluster, scenario.cluster_mark));
        resources = fabric.resource_count();
    });
    fmt::print("  {:<34} {:>8.3f} s {:>10} resources\n", name, seconds, resources);
}

void all_reduce(const char* name, const std::string& cluster, const std::string& rest,
                const std::string& network = "") {
    const Scenario scenario = test::scenario(scenario_of(cluster, rest) + network);
    RunOutput out;
    const double seconds = seconds_of([&] { out = run_scenario(scenario, test::model_cache(), {}); });
    fmt::print("  {:<34} {:>8.3f} s {:>10.3f} ms simulated\n", name, seconds,
               1e3 * out.summary.find("collective_time_s")->value);
}

}  // namespace

int main() {
    const std::string hosts = "{hosts: 16384, fabric: ";
    fmt::print("building 16,384 devices\n");
    build("leaf-spine", hosts + "{kind: leaf-spine, hosts_per_leaf: 32, spines: 32, link: 400 Gbps}}");
    build("fat tree of H100 nodes",
          "{nodes: 2048, node: dgx-h100, fabric: {kind: fat-tree, nodes_per_leaf: 16, rails: 8}}");
    build("rail-only", "{nodes: 2048, node: dgx-h100, fabric: {kind: rail-only}}");
    build("dragonfly", "{nodes: 2048, node: frontier-mi250x, fabric: frontier}");
    build("torus 16x32x32", hosts + "{kind: torus, shape: 16x32x32, link: 600 GB/s}}");
    build("mesh 128x128", hosts + "{kind: torus, shape: 128x128, wrap: false, link: 600 GB/s}}");
    build("fully connected, 2,048 nodes", "{nodes: 2048, node: dgx-h100, fabric: {kind: fully-connected}}");
    build("single switch", hosts + "{kind: single-switch, link: 400 Gbps}}");
    build("multi-level: ring, switch, ring",
          hosts +
              "{kind: multi-level, link: 100 GB/s, levels: [{kind: ring, size: 16, link: 50 GB/s}, "
              "{kind: switch, size: 32, link: 25 GB/s}, {kind: ring, size: 32, link: 10 GB/s}]}}");
    build("racks of NVL72", "{nodes: 228, node: gb200-nvl72, fabric: {kind: rail-only}}");
    build("two sites", hosts +
                           "{kind: sites, link: 100 Gbps, sites: [{name: a, nodes: 8192}, {name: b, nodes: 8192}], "
                           "wan: [{from: a, to: b, link: 100 Gbps, latency: 10 ms}]}}");
    build("graph of 512 switches", hosts + graph() + "}");
    fmt::print("all-reduce of 1 GiB, one node for all\n");
    all_reduce("torus 8x8x8", "{nodes: 512, node: tpu-v5p, fabric: {preset: tpu-v5p-pod, shape: 8x8x8}}", "");
    all_reduce("the same, every node", "{nodes: 512, node: tpu-v5p, fabric: {preset: tpu-v5p-pod, shape: 8x8x8}}", "",
               "network: {fold: false}\n");
    all_reduce("torus 32x64x64 (131,072 devices)",
               "{nodes: 131072, node: tpu-v5p, fabric: {kind: torus, shape: 32x64x64}}", ", algorithm: per-dimension");
    return 0;
}
