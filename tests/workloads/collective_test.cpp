#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>

using namespace orrery;

namespace {

CollectiveSpec spec(CollectiveOp op, const CollectiveAlgorithm* algorithm, double bytes) {
    CollectiveSpec s;
    s.op = op;
    s.algorithm = algorithm;
    s.bytes = bytes;
    return s;
}

double seconds(const Fabric& fabric, const CollectiveSpec& s, std::uint32_t ranks) {
    return run_messages(fabric, make_schedule(s, ranks, fabric.shape().gpus_per_node), {}).seconds;
}

}  // namespace

TEST_CASE("ring collectives take their closed form: steps x (latency + S/n/B)") {
    for (const std::uint32_t n : {2U, 3U, 8U, 16U}) {
        const Fabric fabric(test::hosts(n, n, 1, 1e9, 1e-6));
        for (const auto& [op, steps] : {std::pair{CollectiveOp::all_reduce, 2 * (n - 1)},
                                        {CollectiveOp::all_gather, n - 1},
                                        {CollectiveOp::reduce_scatter, n - 1}}) {
            const double bytes = 1e6 * n;
            const double expected = steps * (2e-6 + bytes / n / 1e9);
            CHECK(seconds(fabric, spec(op, &algorithm("ring"), bytes), n) == doctest::Approx(expected).epsilon(1e-12));
            CHECK(run_ring(fabric, spec(op, &algorithm("ring"), bytes), n, {}).seconds ==
                  doctest::Approx(expected).epsilon(1e-12));
        }
    }
}

TEST_CASE("halving-doubling takes 2 log2(n) latencies and 2 (n-1)/n S/B") {
    for (const std::uint32_t n : {2U, 4U, 16U}) {
        const Fabric fabric(test::hosts(n, n, 1, 1e9, 1e-6));
        const double bytes = 1.6e7;
        const double expected = 2 * std::countr_zero(n) * 2e-6 + 2 * (n - 1.0) / n * bytes / 1e9;
        CHECK(seconds(fabric, spec(CollectiveOp::all_reduce, &algorithm("halving-doubling"), bytes), n) ==
              doctest::Approx(expected).epsilon(1e-12));
    }
    CHECK_THROWS_AS((void)make_schedule(spec(CollectiveOp::all_to_all, &algorithm("halving-doubling"), 1e6), 4, 1),
                    InfeasibleError);
}

TEST_CASE("trees are pipelined: more pieces bring a chain of two levels to twice the payload, not to its depth") {
    // Seven ranks: root with two inner nodes with two leaves each; a parent receives from two children at once.
    const Fabric fabric(test::hosts(7, 7, 1, 1e9));
    CollectiveSpec s = spec(CollectiveOp::all_reduce, &algorithm("tree"), 1e9);
    s.pipeline = 1;
    // Unpipelined: up 2 levels x (2 S/B: two children share the port), down 2 levels x (2 S/B).
    CHECK(seconds(fabric, s, 7) == doctest::Approx(8).epsilon(1e-9));
    s.pipeline = 256;
    CHECK(seconds(fabric, s, 7) < 4.2);
}

TEST_CASE("a pipelined tree takes 3 S/B, a double binary tree 2 S/B like a long ring") {
    const std::uint32_t n = 16;
    const Fabric fabric(test::hosts(n, n, 1, 1e9));
    CollectiveSpec tree = spec(CollectiveOp::all_reduce, &algorithm("tree"), 1e9);
    CollectiveSpec both = spec(CollectiveOp::all_reduce, &algorithm("double-tree"), 1e9);
    tree.pipeline = both.pipeline = 512;
    const double single = seconds(fabric, tree, n);
    const double doubled = seconds(fabric, both, n);
    // An inner node receives from two children going up and from its parent going down: three payloads. With two trees
    // of half the payload a rank is inner in one and leaf in the other: (3 + 1) / 2.
    CHECK(single == doctest::Approx(3).epsilon(0.02));
    CHECK(doubled == doctest::Approx(2).epsilon(0.02));
}

TEST_CASE("a hierarchical all-reduce is reduce-scatter inside, ring between, all-gather inside") {
    FabricShape shape;
    shape.nodes = 4;
    shape.gpus_per_node = 8;
    shape.nics_per_node = 8;
    shape.intra_bandwidth = 100e9;
    shape.nic_bandwidth = 10e9;
    shape.rails = 8;
    const Fabric fabric(shape);
    const double bytes = 8e9;
    const double inside = 7 * (bytes / 8) / 100e9;
    const double between = 6 * (bytes / 8 / 4) / 10e9;
    CHECK(seconds(fabric, spec(CollectiveOp::all_reduce, &algorithm("hierarchical"), bytes), 32) ==
          doctest::Approx(2 * inside + between).epsilon(1e-9));
}

TEST_CASE("an in-switch all-reduce moves the payload once each way") {
    FabricShape shape;
    shape.intra_bandwidth = 100e9;
    const Fabric fabric(shape);
    CHECK(seconds(fabric, spec(CollectiveOp::all_reduce, &algorithm("in-switch"), 1e9), 8) ==
          doctest::Approx(0.01).epsilon(1e-12));
}

TEST_CASE("a direct all-to-all is bound by each host's port: (n-1)/n S/B") {
    const Fabric fabric(test::hosts(16, 4, 4, 1e9));
    CHECK(seconds(fabric, spec(CollectiveOp::all_to_all, &algorithm("direct"), 1.6e9), 16) ==
          doctest::Approx(15.0 / 16 * 1.6).epsilon(1e-9));
}

TEST_CASE("Bruck's all-to-all takes a logarithm of rounds: latency of each, and half the payload in most") {
    const double rate = 1e9;
    for (const std::uint32_t n : {2U, 7U, 8U, 12U}) {
        const Fabric fabric(test::hosts(n, n, 1, rate, 1e-6));
        double expected = 0;
        for (std::uint32_t distance = 1; distance < n; distance *= 2) {
            double blocks = 0;
            for (std::uint32_t block = 1; block < n; ++block) {
                blocks += (block & distance) != 0 ? 1 : 0;
            }
            expected += blocks * 1e6 / n / rate + 2e-6;
        }
        CAPTURE(n);
        CHECK(seconds(fabric, spec(CollectiveOp::all_to_all, &algorithm("bruck"), 1e6), n) * 1e6 ==
              doctest::Approx(expected * 1e6).epsilon(1e-9));
    }
    CHECK_THROWS_WITH_AS((void)make_schedule(spec(CollectiveOp::all_reduce, &algorithm("bruck"), 1e6), 8, 1),
                         doctest::Contains("all-to-all only"), InfeasibleError);
}

TEST_CASE(
    "a folded ring equals the unfolded one at 256 hosts and at 32 nodes of 8 GPUs, and both count every message") {
    FabricShape node;
    node.nodes = 32;
    node.gpus_per_node = 8;
    node.nics_per_node = 8;
    node.intra_bandwidth = 300e9;
    node.intra_latency = 1e-6;
    node.pcie_bandwidth = 25e9;
    node.nic_bandwidth = 25e9;
    node.rails = 8;
    node.spines = 4;
    node.nodes_per_leaf = 8;
    node.link_latency = 6e-7;
    for (const Fabric& fabric : {Fabric(test::hosts(256, 32, 32, 50e9, 5e-7)), Fabric(node)}) {
        MessageRunOptions folded;
        MessageRunOptions unfolded;
        unfolded.fold = false;
        const CollectiveSpec s = spec(CollectiveOp::all_reduce, &algorithm("ring"), 64.0 * 1024 * 1024);
        const MessageRunResult a = run_ring(fabric, s, 256, folded);
        const MessageRunResult b = run_ring(fabric, s, 256, unfolded);
        CHECK(a.folded_into_one > 1);
        CHECK(b.folded_into_one == 1);
        CHECK(a.seconds == b.seconds);
        CHECK(a.messages == 256ULL * 510);
        CHECK(b.messages == a.messages);
        // The stored schedule of the same ring is a third way to the same time.
        CHECK(run_messages(fabric, make_schedule(s, 256, 8), {}).seconds == doctest::Approx(a.seconds).epsilon(1e-9));
    }
}

TEST_CASE("one slow link slows a bandwidth-bound ring by its own factor") {
    const Fabric fabric(test::hosts(16, 16, 1, 1e9));
    CollectiveSpec s = spec(CollectiveOp::all_reduce, &algorithm("ring"), 1.6e9);
    const double before = run_ring(fabric, s, 16, {}).seconds;
    s.slow_rank = 3;
    s.slow_factor = 0.5;
    const double after = run_ring(fabric, s, 16, {}).seconds;
    CHECK(before == doctest::Approx(3.0).epsilon(1e-9));
    CHECK(after > 1.9 * before);
    CHECK(after <= 2.0 * before + 1e-9);
}

TEST_CASE("relabelling hosts under one leaf leaves the times as they were") {
    const Fabric fabric(test::hosts(8, 8, 1, 1e9));
    Schedule a;
    Schedule b;
    for (std::uint32_t i = 0; i < 8; ++i) {
        a.messages.push_back(Message{i, (i + 3) % 8, 1e6 * (i + 1), 0, 0, 0, 0});
        b.messages.push_back(Message{7 - i, (15 - i - 3) % 8, 1e6 * (i + 1), 0, 0, 0, 0});
    }
    CHECK(run_messages(fabric, a, {}).completions == run_messages(fabric, b, {}).completions);
}

TEST_CASE("fluid equals analytic when flows do not meet") {
    const Fabric fabric(test::hosts(16, 4, 4, 1e9, 1e-6));
    TrafficSpec traffic;
    traffic.pattern = TrafficPattern::shift;
    traffic.size = 1e7;
    const Schedule schedule = make_traffic(traffic, 16, 1);
    MessageRunOptions analytic;
    analytic.run.fidelity = Fidelity::analytic;
    CHECK(run_messages(fabric, schedule, {}).completions == run_messages(fabric, schedule, analytic).completions);
}

TEST_CASE("no link carries more than it can in the analytic model either") {
    const Fabric fabric(test::hosts(16, 16, 1, 1e9));
    TrafficSpec traffic;
    traffic.pattern = TrafficPattern::incast;
    traffic.size = 1e7;
    MessageRunOptions analytic;
    analytic.run.fidelity = Fidelity::analytic;
    CHECK(run_messages(fabric, make_traffic(traffic, 16, 1), analytic).seconds == doctest::Approx(0.15).epsilon(1e-9));
    CHECK(run_messages(fabric, make_traffic(traffic, 16, 1), {}).seconds == doctest::Approx(0.15).epsilon(1e-9));
}

TEST_CASE("a slow rank is refused where it would change nothing") {
    const auto run_with = [](const std::string& collective, const std::string& network) {
        const Scenario scenario = test::scenario(
            "orrery: 1\nkind: collective\ncluster: {hosts: 4, fabric: {kind: leaf-spine, hosts_per_leaf: 4, link: 400 "
            "Gbps}}\n"
            "collective: {algorithm: ring, size: 1 MiB, slow_factor: 0.5, " +
            collective + "}\nnetwork: {" + network + "}\n");
        return run_scenario(scenario, test::model_cache(), {}).summary.find("collective_time_s")->value;
    };
    CHECK(run_with("slow_rank: 3", "") > 1.5 * run_with("slow_rank: -1", ""));
    CHECK_THROWS_WITH_AS((void)run_with("slow_rank: 4", ""), doctest::Contains("the last one is 3"), InfeasibleError);
    CHECK_THROWS_AS((void)run_with("slow_rank: 3", "fidelity: simgrid"), ConfigError);
    CHECK_THROWS_AS((void)run_with("slow_rank: 3, op: all-to-all", ""), ConfigError);
    CHECK_THROWS_AS((void)run_with("slow_rank: 3, algorithm: tree", ""), ConfigError);  // an unknown key there
}

TEST_CASE("sums in memory: a step of a ring that makes one reads and writes its rank's memory before the next") {
    const std::uint32_t n = 8;
    const Fabric fabric(test::hosts(n, n, 1, 1e9, 1e-6));
    const double part = 1e6;
    const auto with_memory = [&](CollectiveOp op, const char* name, double memory) {
        MessageRunOptions options;
        options.memories = {memory};
        return run_messages(fabric, make_schedule(spec(op, &algorithm(name), part * n), n, 1), options).seconds;
    };
    const double step = 2e-6 + part / 1e9;
    const double sum = 3 * part / 4e9;
    CHECK(with_memory(CollectiveOp::reduce_scatter, "ring", 4e9) == doctest::Approx((n - 1) * (step + sum)));
    CHECK(with_memory(CollectiveOp::all_gather, "ring", 4e9) == doctest::Approx((n - 1) * step));
    CHECK(with_memory(CollectiveOp::all_reduce, "ring", 4e9) == doctest::Approx((n - 1) * (2 * step + sum)));
    // Halving: n/2, n/4, ... parts, each added once; doubling adds nothing.
    CHECK(with_memory(CollectiveOp::all_reduce, "halving-doubling", 4e9) ==
          doctest::Approx(6 * 2e-6 + 2 * (n - 1) * part / 1e9 + (n - 1) * sum));
    // All that reaches a rank at once shares its memory.
    CHECK(with_memory(CollectiveOp::reduce_scatter, "direct", 4e9) ==
          doctest::Approx(2e-6 + (n - 1) * (part / 1e9 + sum)));
    CHECK(with_memory(CollectiveOp::all_to_all, "direct", 4e9) == doctest::Approx(2e-6 + (n - 1) * part / 1e9));
}

TEST_CASE("sums in memory: a folded torus takes as long as an unfolded one, and its closed form") {
    const auto seconds = [](const char* more, const char* fold) {
        return run_scenario(
                   test::scenario(fmt::format("orrery: 1\nkind: collective\ncluster: {{nodes: 64, node: tpu-v6e, "
                                              "fabric: {{kind: torus, shape: "
                                              "8x8, neighbour_latency: 0 s}}}}\ncollective: {{op: all-reduce, "
                                              "algorithm: per-dimension, size: 64 "
                                              "MB{}}}\nnetwork: {{fidelity: fluid, fold: {}}}\n",
                                              more, fold)),
                   test::model_cache(), {})
            .summary.find("collective_time_s")
            ->value;
    };
    const double free = seconds("", "true");
    const double folded = seconds(", in_memory: true", "true");
    CHECK(folded == doctest::Approx(seconds(", in_memory: true", "false")).epsilon(1e-9));
    // Four parts of 16 MB at once: each rank adds (1 - 1/64) of each, three accesses for every byte, at 1,640 GB/s.
    const double memory = test::scenario(
                              "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: tpu-v6e}\ncollective: "
                              "{op: all-reduce, size: 1 MB}\n")
                              .cluster.node.gpu.memory_bandwidth.value;
    CHECK(folded - free == doctest::Approx(3 * 64e6 * 63 / 64 / memory).epsilon(1e-6));
}

TEST_CASE("sums in memory need a device and a fidelity that shares it") {
    const auto refusal = [](const char* cluster, const char* fidelity) {
        return test::refusal(
            fmt::format("orrery: 1\nkind: collective\ncluster: {}\ncollective: {{op: all-reduce, size: 1 "
                        "MB, in_memory: true}}\nnetwork: {{fidelity: {}}}\n",
                        cluster, fidelity));
    };
    CHECK(refusal("{nodes: 2, node: dgx-h100}", "analytic").empty());
    CHECK(refusal("{nodes: 2, node: dgx-h100}", "packet").find("test.yaml:4") != std::string::npos);
    CHECK(refusal("{hosts: 8, fabric: {link: 100 Gbps}}", "fluid").find("no device") != std::string::npos);
}
