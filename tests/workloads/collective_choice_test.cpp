// Collectives: the algorithms' closed forms, what `auto` takes, and bus bandwidths as nccl-tests counts them.

#include "tests/support/scenarios.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/choose.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace orrery;

namespace {

Scenario collective_case(const std::string& cluster, const std::string& what) {
    return test::scenario(
        fmt::format("orrery: 1\nkind: collective\ncluster: {{{}}}\ncollective: {{{}}}\nnetwork: {{fidelity: "
                    "fluid}}\n",
                    cluster, what));
}

double seconds(const std::string& cluster, const std::string& what) {
    return run_scenario(collective_case(cluster, what), test::model_cache(), {})
        .summary.find("collective_time_s")
        ->value;
}

double busbw(const std::string& cluster, const std::string& what) {  // GB/s
    return run_scenario(collective_case(cluster, what), test::model_cache(), {}).summary.find("busbw_gbps")->value / 8;
}

const std::string kHosts8 = "hosts: 8, fabric: {kind: single-switch, link: 1 GB/s, latency: 0 ns}";

}  // namespace

TEST_CASE("halving-doubling of six ranks folds two of them in: S, then 2 (3/4) S, then S") {
    const std::string six = "hosts: 6, fabric: {kind: single-switch, link: 1 GB/s, latency: 0 ns}";
    CHECK(seconds(six, "op: all-reduce, algorithm: halving-doubling, size: 120 MB") ==
          doctest::Approx(0.12 * (1 + 1.5 + 1)).epsilon(1e-9));
}

TEST_CASE("binomial trees and chains take their closed forms") {
    CHECK(seconds(kHosts8, "op: broadcast, algorithm: binomial, size: 80 MB") == doctest::Approx(0.24).epsilon(1e-9));
    CHECK(seconds(kHosts8, "op: reduce, algorithm: binomial, size: 80 MB, root: 3") ==
          doctest::Approx(0.24).epsilon(1e-9));
    CHECK(seconds(kHosts8, "op: scatter, algorithm: binomial, size: 80 MB") == doctest::Approx(0.07).epsilon(1e-9));
    CHECK(seconds(kHosts8, "op: gather, algorithm: binomial, size: 80 MB") == doctest::Approx(0.07).epsilon(1e-9));
    CHECK(seconds(kHosts8, "op: gather, algorithm: direct, size: 80 MB") == doctest::Approx(0.07).epsilon(1e-9));
    for (const char* op : {"broadcast", "reduce"}) {
        CHECK(seconds(kHosts8, fmt::format("op: {}, algorithm: chain, pipeline: 10, size: 80 MB", op)) ==
              doctest::Approx(0.08 / 10 * (10 + 6)).epsilon(1e-9));
    }
}

TEST_CASE("an all-reduce per dimension uses all links of a torus: 2 (N-1)/N S over them") {
    for (const auto& [shape, dimensions, nodes] : {std::tuple{"4x4", 2, 16}, {"4x4x4", 3, 64}, {"3x5", 2, 15}}) {
        const std::string cluster = fmt::format(
            "hosts: {}, fabric: {{kind: torus, shape: {}, link: 1000 GB/s, neighbour_link: 1 GB/s, neighbour_latency: "
            "0 ns}}",
            nodes, shape);
        const double expected = 2.0 * (nodes - 1) / nodes * 0.96 / (2.0 * dimensions);
        const double taken = seconds(cluster, "op: all-reduce, algorithm: per-dimension, size: 960 MB");
        if (std::string(shape) == "3x5") {  // parts that begin with different sizes are not in step
            CHECK(taken >= expected);
            CHECK(taken < 1.2 * expected);
        } else {
            CHECK(taken == doctest::Approx(expected).epsilon(1e-9));
        }
        CHECK(seconds(cluster, "op: all-reduce, size: 960 MB") == doctest::Approx(taken).epsilon(1e-9));
    }
    // A ring each way along a ring of nodes: half the time of one.
    const std::string ring =
        "hosts: 8, fabric: {kind: torus, shape: 8, link: 1000 GB/s, neighbour_link: 1 GB/s, neighbour_latency: 0 ns}";
    CHECK(seconds(ring, "op: all-reduce, algorithm: bidirectional-ring, size: 80 MB") ==
          doctest::Approx(0.07).epsilon(1e-9));
    CHECK(seconds(ring, "op: all-reduce, algorithm: ring, size: 80 MB") == doctest::Approx(0.14).epsilon(1e-9));
}

TEST_CASE("on a wrapped torus one node stands for all: the time, messages and bytes of every node") {
    for (const auto& [shape, nodes, link] : {std::tuple{"4x4", 16, "1000 GB/s"},
                                             {"3x5", 15, "1000 GB/s"},
                                             {"2x3x4", 24, "1000 GB/s"},
                                             {"4x4x4", 64, "4 GB/s"},  // the NIC binds, and not its six links
                                             {"3x4x5", 60, "4 GB/s"}}) {
        for (const char* op : {"all-reduce", "all-gather", "reduce-scatter"}) {
            for (const char* fidelity : {"fluid", "analytic"}) {
                CAPTURE(shape);
                CAPTURE(op);
                CAPTURE(fidelity);
                const auto summary = [&](const char* fold) {
                    const Scenario s = test::scenario(fmt::format(
                        "orrery: 1\nkind: collective\ncluster: {{hosts: {}, fabric: {{kind: torus, shape: {}, link: "
                        "{}, "
                        "neighbour_link: 1 GB/s}}}}\ncollective: {{op: {}, algorithm: per-dimension, size: 96 MB}}\n"
                        "network: {{fidelity: {}, fold: {}}}\n",
                        nodes, shape, link, op, fidelity, fold));
                    return run_scenario(s, test::model_cache(), {}).summary;
                };
                const Summary folded = summary("true");
                const Summary each = summary("false");
                for (const char* metric : {"collective_time_s", "messages", "bytes_on_wire"}) {
                    CAPTURE(metric);
                    CHECK(folded.find(metric)->value == doctest::Approx(each.find(metric)->value).epsilon(1e-9));
                }
            }
        }
    }
}

TEST_CASE("a torus of 131,072 devices all-reduces folded, in 2 (N-1)/N S over its links and a latency a step") {
    const auto taken = seconds(
        "hosts: 131072, fabric: {kind: torus, shape: 64x64x32, link: 1000 GB/s, neighbour_link: 1 GB/s, "
        "neighbour_latency: 0 ns}",
        "op: all-reduce, size: 131072 MB");
    CHECK(taken >= 2 * 131071.0 / 131072 * 131.072 / 6);
    CHECK(taken < 1.2 * 2 * 131.072 / 6);  // parts that begin with different sizes are not in step
}

TEST_CASE("by default every operation does what it says, over all NICs of a node") {
    const std::string nodes = "nodes: 4, node: dgx-h100, fabric: {kind: rail-only}";
    // Each GPU has 24 of 31 other ranks behind its NIC of 50 GB/s.
    CHECK(busbw(nodes, "op: all-to-all, size: 1 GiB") == doctest::Approx(50 * 31.0 / 24).epsilon(0.03));
    CHECK(busbw(nodes, "op: send-recv, size: 1 GiB") == doctest::Approx(50).epsilon(0.03));
    for (const char* op : {"all-reduce", "all-gather", "reduce-scatter"}) {
        CAPTURE(op);
        CHECK(busbw(nodes, fmt::format("op: {}, size: 4 GiB", op)) > 200);
        CHECK(busbw(nodes, fmt::format("op: {}, algorithm: ring, size: 4 GiB", op)) < 51);
    }
    const std::string text = fmt::format(
        "orrery: 1\nkind: collective\ncluster: {{{}}}\ncollective: {{op: all-to-all, algorithm: ring, size: 1 MB}}\n",
        nodes);
    CHECK_THROWS_WITH_AS((void)run_scenario(test::scenario(text), test::model_cache(), {}),
                         doctest::Contains("serves all-reduce, all-gather and reduce-scatter, not all-to-all"),
                         InfeasibleError);
}

TEST_CASE("broadcast and reduce use all NICs of a node: chains side by side, a part of the payload each") {
    const std::string nodes = "nodes: 4, node: dgx-h100, fabric: {kind: rail-only}";
    for (const char* op : {"broadcast", "reduce"}) {
        CAPTURE(op);
        // 29 + 512 pieces over eight NICs of 50 GB/s, which the inside of a node (450 GB/s) passes on.
        const double closed = 4 * 1.073741824 / 400 * 541.0 / 512;
        const std::string what = fmt::format("op: {}, size: 4 GiB, algorithm: multi-ring, pipeline: 512", op);
        CHECK(seconds(nodes, what) >= closed);
        CHECK(seconds(nodes, what) < 1.15 * closed);
        // Any root will do; the chain then ends in its own node.
        CHECK(seconds(nodes, what + ", root: 13") == doctest::Approx(seconds(nodes, what)).epsilon(0.05));
        // By default: one chain alone is bound by one NIC.
        CHECK(busbw(nodes, fmt::format("op: {}, size: 4 GiB", op)) > 200);
        CHECK(busbw(nodes, fmt::format("op: {}, size: 4 GiB, algorithm: chain", op)) < 51);
    }
    // Every byte goes to every other rank once.
    const RunOutput out =
        run_scenario(test::scenario("orrery: 1\nkind: collective\ncluster: {nodes: 4, node: dgx-h100, fabric: "
                                    "{kind: rail-only}}\ncollective: {op: broadcast, size: 1 GiB, algorithm: "
                                    "multi-ring}\n"),
                     test::model_cache(), {});
    CHECK(out.summary.find("bytes_on_wire")->value == doctest::Approx(31 * 1073741824.0));
    const std::string text = fmt::format(
        "orrery: 1\nkind: collective\ncluster: {{{}}}\ncollective: {{op: broadcast, algorithm: multi-ring, size: 1 MB, "
        "root: 32}}\n",
        nodes);
    CHECK_THROWS_WITH_AS((void)run_scenario(test::scenario(text), test::model_cache(), {}),
                         doctest::Contains("the root is rank 32, but the last one is 31"), InfeasibleError);
}

TEST_CASE("hierarchical from and to a root: shared out in its node, over all NICs, and put together in the others") {
    const std::string nodes = "nodes: 4, node: dgx-h100, fabric: {kind: rail-only}";
    const auto run_of = [&](const std::string& what) {
        return run_scenario(test::scenario(fmt::format(
                                "orrery: 1\nkind: collective\ncluster: {{{}}}\ncollective: {{{}}}\n", nodes, what)),
                            test::model_cache(), {});
    };
    const double gib = 1073741824;
    for (const char* root : {"0", "13"}) {
        CAPTURE(root);
        for (const char* op : {"broadcast", "reduce"}) {
            CAPTURE(op);
            const std::string what = fmt::format("op: {}, size: 1 GiB, algorithm: hierarchical, root: {}", op, root);
            // Two levels of a binomial tree over eight NICs, and two passes of 7/8 over the inside of a node.
            const double closed = 2 * gib / 8 / 50e9 + 2 * gib * 7 / 8 / 450e9;
            CHECK(seconds(nodes, what) == doctest::Approx(closed).epsilon(0.05));
            CHECK(run_of(what).summary.find("bytes_on_wire")->value ==
                  doctest::Approx(op == std::string("broadcast") ? 31 * gib : gib * (4 * 7 + 3 + 7.0 / 8)));
        }
        for (const char* op : {"gather", "scatter"}) {
            CAPTURE(op);
            const std::string what = fmt::format("op: {}, size: 1 GiB, algorithm: hierarchical, root: {}", op, root);
            CHECK(seconds(nodes, what) == doctest::Approx(3 * gib / 32 / 50e9 + gib * 7 / 8 / 450e9).epsilon(0.05));
            CHECK(run_of(what).summary.find("bytes_on_wire")->value == doctest::Approx(gib * (24.0 / 32 + 7.0 / 8)));
        }
    }
    // What has no root names none.
    for (const char* algorithm : {"hierarchical", "multi-ring"}) {
        CHECK_THROWS_WITH_AS(
            (void)run_of(fmt::format("op: all-reduce, size: 1 MiB, algorithm: {}, root: 3", algorithm)),
            doctest::Contains("unknown key 'root'"), ConfigError);
    }
}

TEST_CASE("what auto takes is near the fastest of all algorithms, at small and large sizes") {
    const std::vector<std::string> clusters = {
        "nodes: 4, node: dgx-h100, fabric: {rails: 8}", "hosts: 16, fabric: {link: 100 Gbps}",
        "hosts: 16, fabric: {kind: torus, shape: 4x4, neighbour_link: 50 GB/s}", "nodes: 1, node: dgx-h100"};
    for (const std::string& cluster : clusters) {
        for (const char* op : {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "gather"}) {
            for (const char* size : {"8 KiB", "1 MiB", "1 GiB"}) {
                const std::string what = fmt::format("op: {}, size: {}", op, size);
                const double taken = seconds(cluster, what);
                double best = taken;
                std::string name = "auto";
                for (const CollectiveAlgorithm* row : algorithm_table()) {
                    if (row->estimate == nullptr) {
                        continue;
                    }
                    try {
                        const double other = seconds(cluster, fmt::format("{}, algorithm: {}", what, row->name));
                        name = other < best ? row->name : name;
                        best = std::min(best, other);
                    } catch (const InfeasibleError&) {
                    }
                }
                CAPTURE(cluster);
                CAPTURE(what);
                CAPTURE(name);
                CHECK(taken <= 1.35 * best);
            }
        }
    }
}
