// Training and serving on clusters whose nodes differ.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/explain/fault_what_ifs.hpp"
#include "tools/plan/recovery_search.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

using namespace orrery;

namespace {

using test::metric;
using test::refused;

Scenario job_on(const std::string& cluster, const std::string& plan, const char* settings = "") {
    return test::scenario(
        fmt::format("orrery: 1\nkind: training\ncluster: {}\n"
                    "model: {{layers: 8, hidden: 1024, heads: 16, vocabulary: 1000, sequence: 1024}}\n"
                    "plan: {{tensor: 4, global_batch: 16, micro_batch: 1, {}}}\n"
                    "network: {{fidelity: fluid{}}}\n"
                    "software: {{preset: megatron-core-2024, launch: 1 us}}\n",  // hosts that no kernel waits for
                    cluster, plan, settings));
}

double seconds(const std::string& cluster, const std::string& plan, const char* settings = "") {
    return metric(job_on(cluster, plan, settings), "iteration_time_s");
}

std::string nodes(int count, const char* node) {
    return fmt::format("{{nodes: {}, node: {}, fabric: {{rails: 8, nodes_per_leaf: 2}}}}", count, node);
}

std::string groups(const char* first, const char* second) {
    return fmt::format(
        "{{groups: [{{name: new, nodes: 1, node: {}}}, {{name: old, nodes: 1, node: {}}}], fabric: {{rails: 8, "
        "nodes_per_leaf: 2}}}}",
        first, second);
}

}  // namespace

TEST_CASE("training on equal groups is training on their nodes, in pipelines and in shards") {
    for (const char* plan : {"pipeline: 2, data: 2", "data: 4, zero: 3", "data: 4, zero: 1"}) {
        CAPTURE(plan);
        CHECK(seconds(groups("dgx-h100", "dgx-h100"), plan) == seconds(nodes(2, "dgx-h100"), plan));
    }
}

TEST_CASE("a stage or a replica on older devices takes what they take: between all new and all old") {
    const double fast = seconds(nodes(2, "dgx-h100"), "data: 4");
    const double slow = seconds(nodes(2, "dgx-a100-80g"), "data: 4");
    // Data parallelism waits for the slowest replica.
    const double mixed = seconds(groups("dgx-h100", "dgx-a100-80g"), "data: 4");
    CHECK(mixed > 1.1 * fast);
    CHECK(mixed == doctest::Approx(slow).epsilon(0.1));
    // A pipeline whose second stage is slow.
    const double stages = seconds(groups("dgx-h100", "dgx-a100-80g"), "pipeline: 2, data: 2");
    CHECK(stages > seconds(nodes(2, "dgx-h100"), "pipeline: 2, data: 2"));
    CHECK(stages < seconds(nodes(2, "dgx-a100-80g"), "pipeline: 2, data: 2"));
    // Utilisation is over the peaks of the devices that there are.
    const Scenario s = job_on(groups("dgx-h100", "dgx-a100-80g"), "data: 4");
    const double peak =
        (s.cluster.groups[0].node.gpu.flops_bf16.value + s.cluster.groups[1].node.gpu.flops_bf16.value) / 2;
    CHECK(metric(s, "mfu") == doctest::Approx(metric(s, "tflops_per_gpu") * 1e12 / peak));
}

TEST_CASE("a plan names the groups that its ranks fill, stage after stage or replica after replica") {
    const std::string mixed = groups("dgx-h100", "dgx-a100-80g");
    const std::string turned = groups("dgx-a100-80g", "dgx-h100");
    const std::string pipeline = "pipeline: 2, data: 2";
    CHECK(seconds(mixed, pipeline + ", groups: \"old, new\"") == seconds(turned, pipeline));
    CHECK(seconds(mixed, pipeline + ", groups: \"new\"") == seconds(mixed, pipeline));
    // With a replica on each group both stages of one are old, and nothing of a layer's gradients stays in a node.
    CHECK(seconds(mixed, pipeline + ", spread: replicas") > seconds(mixed, pipeline));
}

TEST_CASE("unknown groups of a plan are told when it is read, at their line, with all that is wrong besides") {
    const std::string text =
        "orrery: 1\nkind: training\ncluster:\n  groups:\n    - {name: new, nodes: 1, node: dgx-h100}\n"
        "    - {name: old, nodes: 1, node: dgx-a100-80g}\nmodel: llama-2-7b\nplan:\n  data: 16\n"
        "  groups: \"olt, new, new\"\n  micro_bach: 1\n";
    try {
        (void)test::scenario(text);
        FAIL("it was read");
    } catch (const ConfigError& error) {
        const std::string all = error.what();
        CHECK(all.find(":10:11: error: the cluster has no group 'olt' (did you mean 'old'?)") != std::string::npos);
        CHECK(all.find(":10:11: error: plan.groups names 'new' twice") != std::string::npos);
        CHECK(all.find("micro_bach") != std::string::npos);
    }
    CHECK_THROWS_WITH_AS((void)job_on("{nodes: 2, node: dgx-h100}", "data: 16, groups: new"),
                         doctest::Contains("plan.groups names 'new', but the cluster has no groups"), ConfigError);
}

TEST_CASE("folded training on groups takes as long as unfolded, where each stage is on one of them") {
    const std::string cluster =
        "{groups: [{name: a, nodes: 2, node: dgx-h100, fabric: {rails: 8}}, {name: b, nodes: 2, node: dgx-a100-80g, "
        "fabric: {rails: 8}}], fabric: {link: 25 Gbps, latency: 20 us}}";
    const Scenario folded = job_on(cluster, "pipeline: 2, data: 4");
    const Scenario unfolded = job_on(cluster, "pipeline: 2, data: 4", ", fold: false");
    CHECK(metric(folded, "iteration_time_s") == doctest::Approx(metric(unfolded, "iteration_time_s")).epsilon(1e-9));
    const RunOutput out = run_scenario(folded, test::model_cache(), {});
    CHECK(out.summary.notes.front().find("2 ranks were simulated, each standing for 16") != std::string::npos);
    // Ranks of a replica never span groups.
    const Scenario wide =
        test::scenario(fmt::format("orrery: 1\nkind: training\ncluster: {}\n"
                                   "model: {{layers: 8, hidden: 1024, heads: 32, vocabulary: 1000, sequence: 1024}}\n"
                                   "plan: {{tensor: 16, context: 2, global_batch: 16}}\n",
                                   cluster));
    CHECK(refused(wide).find("stage 0 of replica 0 lies on 'a' and 'b'") != std::string::npos);
}

TEST_CASE("each stage has to fit into the memory of its own group") {
    const char* const kScenario =
        "orrery: 1\nkind: training\ncluster: {{groups: [{{name: a, nodes: 1, node: {}}}, {{name: b, nodes: 1, node: "
        "{}}}]}}\n"
        "model: {{layers: 40, hidden: 5120, heads: 40, vocabulary: 51200, sequence: 2048}}\n"
        "plan: {{tensor: 8, pipeline: 2, global_batch: 8, sequence_parallel: true, recompute: full}}\n";
    const auto refused = [&](const char* first, const char* second) {
        return test::refused(test::scenario(fmt::format(fmt::runtime(kScenario), first, second)));
    };
    const std::string small =
        "{preset: dgx-a100-40g, gpu: {preset: a100-sxm-40g, memory: {value: 8 GB, how: assumed, source: a test}}}";
    CHECK(refused("dgx-a100-80g", "dgx-a100-80g").empty());
    CHECK(refused("dgx-a100-80g", small.c_str()).find("out of memory: stage 1 needs") != std::string::npos);
    CHECK(refused(small.c_str(), "dgx-a100-80g").find("out of memory: stage 0 needs") != std::string::npos);
}

TEST_CASE("what groups are not simulated with is refused with its line") {
    const auto refusal = [](const std::string& more) {
        return test::refusal(
            fmt::format("orrery: 1\nkind: training\ncluster: {}\n{}\nplan: {{tensor: 8, data: 2, "
                        "global_batch: 16}}\n",
                        groups("dgx-h100", "dgx-a100-80g"), more));
    };
    CHECK(refusal("model: {layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}").empty());
    const std::string model = "model: {layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}\n";
    // Machines from outside of the groups are of none of them.
    const std::string outside =
        refusal(model +
                "faults:\n  duration: 1 d\n  recovery:\n    shrinks: true\n    standbys: 2\n    pool: 1\n"
                "  events: [{at: 1 h, kind: fail-stop, where: node1}]");
    CHECK(outside.find("test.yaml:9:15: error: 'standbys' of a job that 'shrinks' on a cluster of groups") !=
          std::string::npos);
    CHECK(outside.find("test.yaml:10:11: error: 'pool' of a job that 'shrinks'") != std::string::npos);
}

TEST_CASE("replicas of serving are on the nodes of their group, with their devices") {
    const auto serving = [](const std::string& cluster, const char* engine) {
        return test::scenario(
            fmt::format("orrery: 1\nkind: serving\ncluster: {}\nmodel: llama-2-70b\n"
                        "engine: {{replicas: 1, tensor: 8, {}}}\n"
                        "requests: {{rate: 0.5, count: 20, prompt: {{mean: 500}}, output: {{mean: 50}}}}\n",
                        cluster, engine));
    };
    const auto tpot = [&](const std::string& cluster, const char* engine) {
        return metric(serving(cluster, engine), "tpot_s.mean");
    };
    const std::string mixed = groups("dgx-h100", "dgx-a100-80g");
    CHECK(tpot(mixed, "group: old") == tpot(nodes(1, "dgx-a100-80g"), "clock: 100 %"));
    CHECK(tpot(mixed, "group: new") == tpot(nodes(1, "dgx-h100"), "clock: 100 %"));
    CHECK(tpot(mixed, "group: old") > 1.2 * tpot(mixed, "group: new"));
    CHECK_THROWS_WITH_AS((void)serving(mixed, "prefill: {group: odl}, decode: {group: nw}"),
                         doctest::Contains("no group 'odl' (did you mean 'old'?)"), ConfigError);
    CHECK_THROWS_WITH_AS((void)serving(mixed, "prefill: {group: odl}, decode: {group: nw}"),
                         doctest::Contains("no group 'nw' (did you mean 'new'?)"), ConfigError);
}

namespace {

Scenario experts_on(const std::string& cluster, const std::string& plan) {
    return test::scenario(
        fmt::format("orrery: 1\nkind: training\ncluster: {}\n"
                    "model: {{layers: 8, hidden: 1024, heads: 16, vocabulary: 1000, sequence: 1024, "
                    "experts: {{count: 8, topk: 2, ffn: 2048}}}}\n"
                    "plan: {{tensor: 1, global_batch: 32, micro_batch: 1, {}}}\n",
                    cluster, plan));
}

}  // namespace

TEST_CASE("experts on equal groups are experts on their nodes, and the group with slow devices holds all") {
    const std::string even = groups("dgx-h100", "dgx-h100");
    const std::string mixed = groups("dgx-h100", "dgx-a100-80g");
    for (const char* plan : {"data: 16, expert: 8", "data: 16, expert: 4, zero: 1", "pipeline: 2, data: 8, expert: 8",
                             "data: 16, expert: 8, dispatch: hierarchical"}) {
        CAPTURE(plan);
        const double equal = metric(experts_on(nodes(2, "dgx-h100"), plan), "iteration_time_s");
        const double old = metric(experts_on(nodes(2, "dgx-a100-80g"), plan), "iteration_time_s");
        const double both = metric(experts_on(mixed, plan), "iteration_time_s");
        CHECK(metric(experts_on(even, plan), "iteration_time_s") == equal);
        CHECK(both > equal);
        CHECK(both < 1.02 * old);
    }
    // Ranks that share a layer's experts wait for each other in every exchange: they are of one group.
    const std::string wide = refused(test::scenario(
        fmt::format("orrery: 1\nkind: training\ncluster: {}\nmodel: {{layers: 8, hidden: 1024, heads: 16, "
                    "vocabulary: 1000, experts: {{count: 16, topk: 2, ffn: 2048}}}}\nplan: {{data: 16, "
                    "global_batch: 32, expert: 16}}\n",
                    mixed)));
    CHECK(wide.find("ranks 0 to 15 lie on 'new' and 'old'") != std::string::npos);
}

TEST_CASE("a campaign on equal groups is one on their nodes; a node of the slow group that is slower still decides") {
    const auto campaign = [](const std::string& cluster, const char* node) {
        return metric(
            test::scenario(fmt::format(
                "orrery: 1\nkind: training\ncluster: {}\n"
                "model: {{layers: 8, hidden: 1024, heads: 16, vocabulary: 1000, sequence: 1024}}\n"
                "plan: {{tensor: 4, data: 4, global_batch: 16, micro_batch: 1}}\n"
                "faults: {{duration: 1 d, events: [{{at: 0 s, kind: slow, where: {}, factor: 0.5, lasts: 12 h}}]}}\n",
                cluster, node)),
            "goodput_fraction");
    };
    CHECK(campaign(groups("dgx-h100", "dgx-h100"), "node1") == campaign(nodes(2, "dgx-h100"), "node1"));
    const std::string mixed = groups("dgx-h100", "dgx-a100-80g");
    // The first node is twice as slow as before, and then about as slow as the second: less is lost.
    CHECK(campaign(mixed, "node0") > campaign(mixed, "node1"));
}

namespace {

// Two and two nodes, or so many, of which some are lost at the start and for good.
std::string two_kinds(int first, const char* one, int second, const char* other) {
    return fmt::format(
        "{{groups: [{{name: a, nodes: {}, node: {}}}, {{name: b, nodes: {}, node: {}}}], fabric: {{rails: 8, "
        "nodes_per_leaf: 4}}}}",
        first, one, second, other);
}

Scenario shrinking(const std::string& cluster, const std::string& plan, const std::string& lost = "",
                   const char* repair = "1000 d") {
    return test::scenario(fmt::format(
        "orrery: 1\nkind: training\ncluster: {}\n"
        "model: {{layers: 8, hidden: 1024, heads: 16, vocabulary: 1000, sequence: 1024}}\n"
        "plan: {{global_batch: 24, micro_batch: 1, {}}}\nsoftware: {{preset: megatron-core-2024, launch: 1 us}}\n{}",
        cluster, plan,
        lost.empty() ? ""
                     : fmt::format("faults: {{duration: 10 d, checkpoint: {{interval: {{kind: fixed, every: 30 "
                                   "min}}}}, recovery: {{shrinks: true, repair: {{automatic: {{mean: "
                                   "{}}}}}}}, events: [{}]}}\n",
                                   repair, lost)));
}

std::string lose(const char* where, const char* at = "0 s") {
    return fmt::format("{{at: {}, kind: fail-stop, where: {}}}", at, where);
}

}  // namespace

TEST_CASE("a job on equal groups shrinks and grows again as one on their nodes, to the last digit") {
    const std::string even = two_kinds(2, "dgx-h100", 2, "dgx-h100");
    const char* const kNodes = "{nodes: 4, node: dgx-h100, fabric: {rails: 8, nodes_per_leaf: 4}}";
    for (const char* plan : {"tensor: 8, data: 4", "tensor: 4, data: 8", "tensor: 8, data: 4, zero: 1",
                             "tensor: 8, pipeline: 2, data: 2"}) {
        for (const char* where : {"node3", "node0"}) {
            CAPTURE(plan);
            CAPTURE(where);
            const Scenario groups_of = shrinking(even, plan, lose(where, "1 h"), "30 h");
            const Scenario nodes_of = shrinking(kNodes, plan, lose(where, "1 h"), "30 h");
            CHECK(metric(groups_of, "lost_s.fewer_nodes") > 1000);
            for (const char* name : {"goodput_fraction", "lost_s.fewer_nodes", "lost_s.lost_work"}) {
                CHECK(metric(groups_of, name) == metric(nodes_of, name));
            }
        }
    }
}

TEST_CASE("what is left of a job on groups takes what the same job takes on what is left") {
    const std::string all = two_kinds(2, "dgx-h100", 2, "dgx-a100-80g");
    const auto share = [&](const std::string& plan, const std::string& lost) {
        return metric(shrinking(all, plan, lost), "goodput_fraction");
    };
    const auto time = [&](const std::string& cluster, const std::string& plan) {
        return metric(shrinking(cluster, plan), "iteration_time_s");
    };
    // A replica of either group: three are left, the old ones still the slowest.
    const double four = time(all, "tensor: 8, data: 4");
    const double less_new = four / time(two_kinds(1, "dgx-h100", 2, "dgx-a100-80g"), "tensor: 8, data: 3");
    const double less_old = four / time(two_kinds(2, "dgx-h100", 1, "dgx-a100-80g"), "tensor: 8, data: 3");
    CHECK(share("tensor: 8, data: 4", lose("node1")) == doctest::Approx(less_new).epsilon(2e-3));
    CHECK(share("tensor: 8, data: 4", lose("node2")) == doctest::Approx(less_old).epsilon(2e-3));
    // A pipeline whose stages lie on a group each: one replica of both stages.
    const char* const kStages = "tensor: 8, pipeline: 2, data: 2";
    const double pair = time(two_kinds(1, "dgx-h100", 1, "dgx-a100-80g"), "tensor: 8, pipeline: 2, data: 1");
    CHECK(share(kStages, lose("node0")) == doctest::Approx(time(all, kStages) / pair).epsilon(2e-3));
    // A replica of two nodes, all of one group: it goes on where two nodes are.
    const char* const kWide = "tensor: 4, context: 4, data: 2";
    const double old =
        time("{nodes: 2, node: dgx-a100-80g, fabric: {rails: 8, nodes_per_leaf: 4}}", "tensor: 4, context: 4, data: 1");
    CHECK(share(kWide, lose("node0")) == doctest::Approx(time(all, kWide) / old).epsilon(2e-3));
    // One node of each group is left: no replica can be made, and the job waits.
    const Scenario none = shrinking(all, kWide, lose("node0") + ", " + lose("node3"));
    CHECK(metric(none, "lost_s.hardware") > 0.99 * 10 * 86400);
}

TEST_CASE("a node that is slow in what is left of a job on groups slows it, and one that stands by does not") {
    const std::string all = two_kinds(2, "dgx-h100", 2, "dgx-h100");
    const auto share = [&](const char* batch, const std::string& more) {
        Scenario s = shrinking(all, "tensor: 8, data: 4", lose("node0") + more);
        s.as<TrainingKind>().plan.global_batch = std::stoll(batch);
        return metric(s, "goodput_fraction");
    };
    const auto slow = [](const char* where) {
        return fmt::format(", {{at: 1 d, kind: slow, where: {}, factor: 0.5, lasts: 5 d}}", where);
    };
    CHECK(share("24", slow("node3")) < 0.95 * share("24", ""));
    // The node that is left of the first group has its first place.
    CHECK(share("24", slow("node0")) == doctest::Approx(share("24", slow("node3"))).epsilon(1e-3));
    CHECK(share("24", slow("node1")) == doctest::Approx(share("24", "")).epsilon(1e-6));
    // Two replicas divide a batch of 8, three do not: a node of the second group stands by.
    CHECK(share("8", slow("node3")) == doctest::Approx(share("8", "")).epsilon(1e-6));
    CHECK(share("8", slow("node2")) < 0.97 * share("8", ""));
}

TEST_CASE("what-ifs and plan bring no standbys to a job on groups that shrinks") {
    const auto standbys = [](const Scenario& s) {
        const std::vector<CampaignVariant> variants = fault_variants(s);
        return std::any_of(variants.begin(), variants.end(),
                           [](const CampaignVariant& one) { return one.faults.recovery.standbys > 0; });
    };
    const char* const kPlan = "tensor: 8, data: 4";
    const Scenario mixed = shrinking(two_kinds(2, "dgx-h100", 2, "dgx-a100-80g"), kPlan, lose("node0", "1 h"));
    CHECK(!standbys(mixed));
    CHECK(standbys(shrinking("{nodes: 4, node: dgx-h100, fabric: {rails: 8}}", kPlan, lose("node0", "1 h"))));
    for (const RecoveryChoice& choice : search_recovery(mixed, test::model_cache())) {
        CHECK(choice.standbys == 0);
    }
}
