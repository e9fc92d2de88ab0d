// Exchanges of passes on the fabric: alone they take what the same collective takes as a scenario of its own, on every fabric and at
// every fidelity; beside other transfers they and those share the links.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace orrery;

namespace {

struct Case {
    std::string name;
    std::string fabric;
};

// 8 nodes of 4 GPUs with a NIC each.
const std::vector<Case> kFabrics = {
    {"leaf-spine 1:1", "{kind: leaf-spine, nodes_per_leaf: 2, rails: 1, link: 200 Gbps, latency: 500 ns}"},
    {"leaf-spine 2:1",
     "{kind: leaf-spine, nodes_per_leaf: 2, rails: 1, link: 200 Gbps, latency: 500 ns, oversubscription: 2}"},
    {"leaf-spine 4:1",
     "{kind: leaf-spine, nodes_per_leaf: 2, rails: 1, link: 200 Gbps, latency: 500 ns, oversubscription: 4}"},
    {"rail-only", "{kind: rail-only, link: 200 Gbps, latency: 500 ns}"},
    {"fat tree",
     "{kind: fat-tree, nodes_per_leaf: 1, rails: 1, spines: 2, leaf_groups_per_pod: 2, cores_per_spine: 2, "
     "oversubscription: 2, core_oversubscription: 2, link: 200 Gbps, latency: 500 ns}"},
    {"dragonfly",
     "{kind: dragonfly, groups: 4, routers_per_group: 2, nics_per_router: 4, global_links: 2, link: 200 Gbps, "
     "local_link: 200 Gbps, global_link: 200 Gbps, latency: 500 ns}"},
};

constexpr const char* kNode = "{preset: dgx-a100-80g, gpus: 4, nics: 4}";

/// Ranks that exchange, what one layer exchanges in a forward and a backward pass, and the same as a collective.
struct Exchange {
    std::string name;
    const char* model;
    const char* plan;
    Category category;
    double per_layer;
    const char* collective;
};
const std::vector<Exchange> kExchanges = {
    {"experts",
     "hidden: 4096, heads: 32, ffn: 4096, gated: true, sequence: 1024, experts: {count: 32, topk: 2, ffn: 1024}",
     "data: 32, expert: 32, micro_batch: 1, global_batch: 32, overlap: {data: false}", Category::expert_communication,
     4, "op: all-to-all, algorithm: direct, size: 16 MiB"},
    {"tensors", "hidden: 4096, heads: 32, ffn: 16384, sequence: 131072",
     "tensor: 32, micro_batch: 1, global_batch: 1, sequence_parallel: false", Category::tensor_communication, 4,
     "op: all-reduce, algorithm: multi-ring, size: 1 GiB"},
    {"sequences", "hidden: 4096, heads: 32, ffn: 16384, sequence: 65536",
     "context: 32, micro_batch: 1, global_batch: 1, context_exchange: all-gather", Category::context_communication, 3,
     "op: all-gather, algorithm: multi-ring, size: 1 GiB"},
};

TrainingResult train(const std::string& cluster, const std::string& model, int layers, const std::string& plan,
                     const std::string& network) {
    RunOptions options;
    options.check_memory = false;
    return *run_scenario(
                test::scenario(fmt::format(
                    "orrery: 1\nkind: training\ncluster: {{{}}}\nmodel: {{layers: {}, vocabulary: 1024, "
                    "tied_embeddings: true, {}}}\nplan: {{recompute: none, {}}}\n"
                    "software: {{preset: megatron-core-2024, expert_wait: 0 s}}\nnetwork: {{collectives: ideal, {}}}\n",
                    cluster, layers, model, plan, network)),
                test::model_cache(), options)
                .training;
}

double booked(const TrainingResult& of, Category category) {
    return of.booked[static_cast<std::size_t>(category)];
}

// Of one exchange of a layer.
double exchange_seconds(const Case& of, const Exchange& exchange, const std::string& fidelity) {
    const std::string cluster = fmt::format("nodes: 8, node: {}, fabric: {}", kNode, of.fabric);
    const auto layers = [&](int count) {
        return booked(train(cluster, exchange.model, count, exchange.plan, "fidelity: " + fidelity), exchange.category);
    };
    return (layers(4) - layers(2)) / 2 / exchange.per_layer;
}

double collective_seconds(const Case& of, const Exchange& exchange, const std::string& fidelity) {
    const Scenario s = test::scenario(
        fmt::format("orrery: 1\nkind: collective\ncluster: {{nodes: 8, node: {}, fabric: {}}}\ncollective: {{{}}}\n"
                    "network: {{fidelity: {}}}\n",
                    kNode, of.fabric, exchange.collective, fidelity));
    return run_scenario(s, test::model_cache(), {}).summary.find("collective_time_s")->value;
}

}  // namespace

TEST_CASE("exchanges of passes take what the collective alone takes, on every fabric and at every fidelity") {
    for (const Exchange& exchange : kExchanges) {
        CAPTURE(exchange.name);
        double least = 0;
        for (const Case& of : kFabrics) {
            CAPTURE(of.name);
            const double fluid = exchange_seconds(of, exchange, "fluid");
            const double analytic = exchange_seconds(of, exchange, "analytic");
            CHECK(fluid > 0);
            CHECK(fluid == doctest::Approx(collective_seconds(of, exchange, "fluid")).epsilon(0.03));
            CHECK(analytic == doctest::Approx(collective_seconds(of, exchange, "analytic")).epsilon(0.03));
            CHECK(analytic == doctest::Approx(fluid).epsilon(0.1));
            if (exchange.category == Category::expert_communication) {
                CHECK(exchange_seconds(of, exchange, "packet") ==
                      doctest::Approx(collective_seconds(of, exchange, "packet")).epsilon(0.03));
            }
            if (of.name.find("leaf-spine") == 0) {
                CHECK(fluid > least * 0.999);  // more oversubscription is never faster
                least = fluid;
            }
        }
    }
}

TEST_CASE("between two leaves an exchange takes what crosses over their links, also as an activity") {
    for (const double oversubscription : {1.0, 2.0, 4.0}) {
        CAPTURE(oversubscription);
        const std::string fabric = fmt::format(
            "{{kind: leaf-spine, nodes_per_leaf: 4, rails: 1, link: 200 Gbps, latency: 500 ns, oversubscription: {}}}",
            oversubscription);
        const double seconds = exchange_seconds({"pair", fabric}, kExchanges[0], "fluid");
        // Of 16 MiB a rank sends 28/32 to other nodes by its NIC, and half of all leaves the leaf.
        const double bytes = 16 << 20;
        const double port = bytes * 28 / 32 / 25e9;
        const double leaf = bytes / 2 * oversubscription / 25e9;
        CHECK(seconds == doctest::Approx(std::max(port, leaf)).epsilon(0.01));
    }
}

TEST_CASE("an exchange and a sum of gradients beside it share the links that both use") {
    const std::string cluster = fmt::format("nodes: 8, node: {}, fabric: {}", kNode, kFabrics[2].fabric);
    const char* model =
        "hidden: 4096, heads: 32, ffn: 4096, gated: true, sequence: 1024, experts: {count: 32, topk: 8, "
        "ffn: 64}";
    const auto run = [&](const std::string& fidelity, bool overlap) {
        return train(cluster, model, 12,
                     fmt::format("data: 32, expert: 32, micro_batch: 1, global_batch: 32, zero: 0, "
                                 "overlap: {{data: {}}}",
                                 overlap),
                     "fidelity: " + fidelity);
    };
    // A price does not see the sums; on the fabric what they take of the links is taken from the exchanges.
    const double apart = run("fluid", false).iteration_s;
    const double price = run("analytic", true).iteration_s;
    const TrainingResult shared = run("fluid", true);
    CHECK(price < 0.99 * shared.iteration_s);
    CHECK(shared.iteration_s <= apart * 1.001);
    CHECK(booked(shared, Category::expert_communication) >
          1.01 * booked(run("fluid", false), Category::expert_communication));
}

TEST_CASE("one rank of a stage stands for all others with exchanges on the fabric too") {
    for (const Exchange& exchange : kExchanges) {
        CAPTURE(exchange.name);
        for (const Case& of : kFabrics) {
            CAPTURE(of.name);
            const std::string cluster = fmt::format("nodes: 8, node: {}, fabric: {}", kNode, of.fabric);
            const TrainingResult folded = train(cluster, exchange.model, 2, exchange.plan, "fold: true");
            const TrainingResult whole = train(cluster, exchange.model, 2, exchange.plan, "fold: false");
            CHECK(folded.iteration_s == doctest::Approx(whole.iteration_s).epsilon(1e-9));
        }
    }
}

TEST_CASE("stages with exchanges that hide behind another micro-batch fold as well") {
    const char* model =
        "hidden: 4096, heads: 32, ffn: 4096, gated: true, sequence: 1024, experts: {count: 16, topk: 4, "
        "ffn: 1024}";
    for (const char* schedule : {"1f1b", "zb-h1", "dualpipe, chunks: 2"}) {
        CAPTURE(std::string(schedule));
        for (const Case& of : kFabrics) {
            CAPTURE(of.name);
            const std::string cluster = fmt::format("nodes: 8, node: {}, fabric: {}", kNode, of.fabric);
            const std::string plan = fmt::format(
                "pipeline: 2, data: 16, expert: 16, dispatch: hierarchical, micro_batch: 1, global_batch: 96, zero: 1, "
                "schedule: {}, overlap: {{experts: batches, pipeline: true, data: true}}",
                schedule);
            const double folded = train(cluster, model, 4, plan, "fold: true").iteration_s;
            CHECK(folded == doctest::Approx(train(cluster, model, 4, plan, "fold: false").iteration_s).epsilon(1e-9));
            // Beside others an exchange is not faster than alone.
            CHECK(folded > 0.98 * train(cluster, model, 4, plan, "fidelity: analytic").iteration_s);
        }
    }
}

TEST_CASE("a NIC at half its rate slows what a pass exchanges") {
    const auto lost = [&](const std::string& fidelity) {
        const Scenario s = test::scenario(
            fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 8, node: {}, fabric: {}}}\nmodel: {{layers: 2, "
                        "vocabulary: 1024, tied_embeddings: true, {}}}\nplan: {{{}}}\n"
                        "software: {{preset: megatron-core-2024, expert_wait: 0 s}}\n"
                        "network: {{collectives: ideal, fidelity: {}}}\n"
                        "faults: {{duration: 2 h, events: [{{at: 30 min, kind: degraded, where: nic5, factor: 0.5, "
                        "lasts: 1 h}}]}}\n",
                        kNode, kFabrics[0].fabric, kExchanges[0].model, kExchanges[0].plan, fidelity));
        RunOptions options;
        options.check_memory = false;
        const RunOutput out = run_scenario(s, test::model_cache(), options);
        const double exchanges =
            booked(*out.training, Category::expert_communication) + booked(*out.training, Category::data_communication);
        const double seconds = out.training->iteration_s;
        return std::pair{out.summary.find("lost_s.network")->value, 3600 * exchanges / (seconds + exchanges)};
    };
    // Of an hour, what an iteration takes longer over what it then takes: both its exchanges and its sums take twice as long.
    const auto [fluid, expected] = lost("fluid");
    CHECK(fluid == doctest::Approx(expected).epsilon(0.03));
    CHECK(lost("analytic").first < 0.7 * fluid);  // a price knows the fabric as it was built
}

TEST_CASE("run says of exchanges that they are a price where they do not run on the fabric") {
    const auto notes = [&](const std::string& fidelity, const std::string& plan) {
        RunOptions options;
        options.check_memory = false;
        const Scenario s = test::scenario(
            fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 8, node: {}, fabric: {}}}\nmodel: {{layers: 2, "
                        "vocabulary: 1024, {}}}\nplan: {{{}}}\nnetwork: {{fidelity: {}}}\n",
                        kNode, kFabrics[0].fabric, kExchanges[0].model, plan, fidelity));
        return fmt::format("{}", fmt::join(run_scenario(s, test::model_cache(), options).summary.notes, "\n"));
    };
    const std::string price = "exchanges of expert groups between nodes take the time of the most loaded link";
    CHECK(notes("fluid", kExchanges[0].plan).find(price) == std::string::npos);
    CHECK(notes("analytic", kExchanges[0].plan).find(price) != std::string::npos);
    CHECK(notes("fluid", "data: 32, expert: 4, micro_batch: 1, global_batch: 32").find(price) == std::string::npos);
}
