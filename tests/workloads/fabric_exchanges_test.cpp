// Exchanges inside passes cross the fabric: they take what the same collective takes as a scenario of its own, on every fabric and at
// every fidelity, and what all groups together leave of the links.

#include "sim/network/concurrent_groups.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/plan/rank_groups.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

using namespace orrery;

namespace {

struct Case {
    std::string name;
    std::string fabric;
};

// 8 nodes of 4 GPUs with a NIC each.
const std::vector<Case>& cases() {
    static const std::vector<Case> kCases = {
        {"leaf-spine 1:1", "{kind: leaf-spine, nodes_per_leaf: 2, rails: 1, link: 200 Gbps, latency: 500 ns}"},
        {"leaf-spine 2:1",
         "{kind: leaf-spine, nodes_per_leaf: 2, rails: 1, link: 200 Gbps, latency: 500 ns, oversubscription: 2}"},
        {"leaf-spine 4:1",
         "{kind: leaf-spine, nodes_per_leaf: 2, rails: 1, link: 200 Gbps, latency: 500 ns, oversubscription: 4}"},
        {"leaf-spine 4:1 by rails",
         "{kind: leaf-spine, nodes_per_leaf: 2, rails: 4, link: 200 Gbps, latency: 500 ns, oversubscription: 4}"},
        {"rail-only", "{kind: rail-only, link: 200 Gbps, latency: 500 ns}"},
        {
            "fat tree 2:1 and 2:1",
            "{kind: fat-tree, nodes_per_leaf: 1, rails: 1, spines: 2, leaf_groups_per_pod: 2, cores_per_spine: 2, "
            "oversubscription: 2, core_oversubscription: 2, link: 200 Gbps, latency: 500 ns}",
        },
        {
            "dragonfly",
            "{kind: dragonfly, groups: 4, routers_per_group: 2, nics_per_router: 4, global_links: 2, link: 200 Gbps, "
            "local_link: 200 Gbps, global_link: 200 Gbps, latency: 500 ns}",
        },
    };
    return kCases;
}

constexpr const char* kNode = "{preset: dgx-a100-80g, gpus: 4, nics: 4}";

double collective_seconds(const Case& of, const std::string& collective, const std::string& fidelity) {
    const Scenario s = test::scenario(
        fmt::format("orrery: 1\nkind: collective\ncluster: {{nodes: 8, node: {}, fabric: {}}}\ncollective: {{{}}}\n"
                    "network: {{fidelity: {}}}\n",
                    kNode, of.fabric, collective, fidelity));
    return run_scenario(s, test::model_cache(), {}).summary.find("collective_time_s")->value;
}

double priced_seconds(const Case& of, CollectiveOp op, double bytes) {
    const Scenario s = test::scenario(fmt::format(
        "orrery: 1\nkind: collective\ncluster: {{nodes: 8, node: {}, fabric: {}}}\ncollective: {{size: 1 B}}\n", kNode,
        of.fabric));
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    ConcurrentGroups::Group all;
    for (std::uint32_t gpu = 0; gpu < fabric.gpus(); ++gpu) {
        all.emplace_back(gpu);
    }
    return ConcurrentGroups(fabric, PathChoice::spray, {all}).seconds(IdealCollectives(), op, Bytes(bytes)).value();
}

}  // namespace

TEST_CASE("an all-to-all inside a pass takes what the collective alone takes, on every fabric and at every fidelity") {
    const std::string exchange = "op: all-to-all, algorithm: direct, size: 16 MiB";
    for (const Case& of : cases()) {
        CAPTURE(of.name);
        const double priced = priced_seconds(of, CollectiveOp::all_to_all, 16 << 20);
        CHECK(priced == doctest::Approx(collective_seconds(of, exchange, "analytic")).epsilon(0.01));
        CHECK(priced == doctest::Approx(collective_seconds(of, exchange, "fluid")).epsilon(0.01));
        CHECK(priced == doctest::Approx(collective_seconds(of, exchange, "packet")).epsilon(0.03));
    }
}

// Of many bytes: the price of an ideal library has no latency of steps.
TEST_CASE("a gather inside a pass takes what as many rings as NICs take alone") {
    const std::string gather = "op: all-gather, algorithm: multi-ring, size: 1 GiB";
    for (const Case& of : cases()) {
        CAPTURE(of.name);
        const double priced = priced_seconds(of, CollectiveOp::all_gather, 1 << 30);
        CHECK(priced == doctest::Approx(collective_seconds(of, gather, "fluid")).epsilon(0.03));
        CHECK(priced == doctest::Approx(collective_seconds(of, gather, "analytic")).epsilon(0.03));
    }
}

TEST_CASE("groups that exchange at once share the links between leaves, and not the ports that each has for itself") {
    for (const double oversubscription : {1.0, 4.0}) {
        CAPTURE(oversubscription);
        const Scenario s = test::scenario(
            fmt::format("orrery: 1\nkind: collective\ncluster: {{nodes: 4, node: {}, fabric: {{kind: leaf-spine, "
                        "nodes_per_leaf: 2, "
                        "rails: 1, link: 200 Gbps, latency: 0 s, oversubscription: {}}}}}\ncollective: {{size: 1 B}}\n",
                        kNode, oversubscription));
        const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
        // A GPU of every node each: rank i of each node in group i.
        std::vector<ConcurrentGroups::Group> groups(4);
        for (std::uint32_t gpu = 0; gpu < 16; ++gpu) {
            groups[gpu % 4].emplace_back(gpu);
        }
        const auto seconds = [&](std::vector<ConcurrentGroups::Group> of) {
            return ConcurrentGroups(fabric, PathChoice::spray, std::move(of))
                .seconds(IdealCollectives(), CollectiveOp::all_to_all, Bytes(1e9))
                .value();
        };
        // 3/4 GB leave by a port of 25 GB/s. A leaf sends half of what its 8 ranks have over 8 links, or over 2.
        const double port = 0.75e9 / 25e9;
        const double leaf = 8 * 0.5e9 / (8 * 25e9 / oversubscription);
        CHECK(seconds(groups) == doctest::Approx(std::max(port, leaf)).epsilon(1e-4));
        CHECK(seconds({groups[0]}) == doctest::Approx(std::max(port, leaf / 4)).epsilon(1e-4));
    }
}

TEST_CASE(
    "oversubscription slows exchanges of experts, tensor and context groups that leave a node, at each fidelity") {
    struct Plan {
        const char* name;
        const char* model;
        const char* plan;
        const char* category;
    };
    const std::string dense =
        "{layers: 2, hidden: 4096, heads: 64, ffn: 16384, vocabulary: 1024, sequence: 8192, tied_embeddings: true}";
    const std::string experts =
        "{layers: 2, hidden: 4096, heads: 32, ffn: 4096, gated: true, vocabulary: 1024, sequence: 4096, "
        "tied_embeddings: true, experts: {count: 64, topk: 4, ffn: 1024}}";
    const Plan plans[] = {
        {"experts", experts.c_str(), "data: 64, expert: 64, micro_batch: 1, global_batch: 64, zero: 1",
         "expert communication"},
        {"tensor", dense.c_str(), "tensor: 32, data: 2, micro_batch: 1, global_batch: 2", "tensor communication"},
        {"context", dense.c_str(),
         "tensor: 8, context: 8, data: 1, micro_batch: 1, global_batch: 1, context_exchange: all-gather",
         "context communication"},
    };
    for (const Plan& of : plans) {
        CAPTURE(of.name);
        const auto exposed = [&](int oversubscription, const std::string& fidelity) {
            const Scenario s = test::scenario(fmt::format(
                "orrery: 1\nkind: training\ncluster: {{nodes: 8, node: dgx-h100, fabric: {{kind: leaf-spine, "
                "nodes_per_leaf: 1, rails: 8, oversubscription: {}}}}}\nmodel: {}\nplan: {{{}}}\n"
                "network: {{fidelity: {}}}\n",
                oversubscription, of.model, of.plan, fidelity));
            RunOptions options;
            options.check_memory = false;
            const Summary summary = run_scenario(s, test::model_cache(), options).summary;
            for (const auto& [name, seconds] : summary.breakdown) {
                if (name == of.category) {
                    return seconds;
                }
            }
            return 0.0;
        };
        for (const std::string fidelity : {"analytic", "fluid"}) {
            CAPTURE(fidelity);
            const double even = exposed(1, fidelity);
            CHECK(even > 0);
            CHECK(exposed(2, fidelity) > 1.5 * even);
            CHECK(exposed(4, fidelity) > 3 * even);
        }
    }
}
