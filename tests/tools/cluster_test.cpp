// Several jobs on one cluster.

#include "tools/driver/kinds/cluster.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

using namespace orrery;

namespace {

// Two leaves of two nodes with one GPU and one NIC of 50 GB/s each, joined by one spine: an uplink of 25 GB/s per leaf.
std::string two_leaves(const std::string& network, const std::string& jobs) {
    return fmt::format(R"(orrery: 1
kind: cluster
cluster:
  hosts: 4
  fabric: {{kind: leaf-spine, hosts_per_leaf: 2, spines: 1, link: 400 Gbps, latency: 0 ns, oversubscription: 4}}
network: {{{}}}
jobs:
{})",
                       network, jobs);
}

const char* kTraffic = "scenario: {{kind: network, traffic: {{pattern: shift, shift: 1, size: {} MiB}}}}";

std::string job(const std::string& name, const std::string& nodes, double mib, double start = 0) {
    return fmt::format("  - {{name: {}, nodes: \"{}\", start: {} s, {}}}\n", name, nodes, start,
                       fmt::format(fmt::runtime(kTraffic), mib));
}

double value(const Summary& summary, const std::string& name) {
    const Metric* metric = summary.find(name);
    REQUIRE_MESSAGE(metric != nullptr, name);
    return metric->value;
}

Summary run_text(const std::string& text) {
    return run_scenario(test::scenario(text), test::model_cache(), {}).summary;
}

}  // namespace

TEST_CASE("two jobs share one link by max-min: each slows the other by what the share says, fluid and by packet") {
    // Each job sends one message up from leaf 0 and one down to it; both uplinks carry one of each job.
    const double bytes = 64 * 1048576.0;
    const double uplink = 25e9;
    for (const bool packets : {false, true}) {
        CAPTURE(packets);
        const std::string network =
            packets ? "fidelity: packet, paths: ecmp, transport: {kind: ideal}, mtu: 4096 B, header: 1 B"
                    : "fidelity: fluid";
        const double tolerance = packets ? 2e-3 : 1e-9;
        const Summary alone = run_text(two_leaves(network, job("one", "0,2", 64)));
        CHECK(value(alone, "one.fct_s.max") == doctest::Approx(bytes / uplink).epsilon(tolerance));
        const Summary both = run_text(two_leaves(network, job("one", "0,2", 64) + job("two", "1,3", 32)));
        // Half the link each until the shorter has ended.
        CHECK(value(both, "two.fct_s.max") == doctest::Approx(bytes / uplink).epsilon(tolerance));
        CHECK(value(both, "one.fct_s.max") == doctest::Approx(1.5 * bytes / uplink).epsilon(tolerance));
        CHECK(value(both, "makespan_s") == doctest::Approx(1.5 * bytes / uplink).epsilon(tolerance));
        // A job's times count from its own start.
        const double start = 0.5 * bytes / uplink;
        const Summary later = run_text(two_leaves(network, job("one", "0,2", 64) + job("two", "1,3", 32, start)));
        CHECK(value(later, "two.fct_s.max") == doctest::Approx(bytes / uplink).epsilon(tolerance));
        CHECK(value(later, "one.fct_s.max") == doctest::Approx(1.5 * bytes / uplink).epsilon(tolerance));
    }
}

TEST_CASE("a job alone in a cluster has the metrics of its scenario, wherever its nodes are") {
    const std::string training = R"(model: {layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}
plan: {tensor: 2, data: 8, global_batch: 16}
software: megatron-lm-2021
)";
    const std::string cluster = "cluster: {nodes: 2, node: dgx-a100-80g}\n";
    const Summary plain = run_text("orrery: 1\nkind: training\n" + cluster + training);
    std::string inline_job = "      kind: training\n";
    for (std::size_t at = 0; at < training.size();) {
        const std::size_t end = training.find('\n', at) + 1;
        inline_job += "      " + training.substr(at, end - at);
        at = end;
    }
    for (const char* nodes : {"0-1", "2", "4,1"}) {
        const Summary job = run_text(
            fmt::format("orrery: 1\nkind: cluster\ncluster: {{nodes: 6, node: dgx-a100-80g}}\njobs:\n  - name: job\n"
                        "    nodes: \"{}\"\n    scenario:\n{}",
                        nodes, inline_job));
        for (const Metric& metric : plain.metrics) {
            CHECK_MESSAGE(value(job, "job." + metric.name) == doctest::Approx(metric.value).epsilon(1e-12),
                          metric.name);
        }
    }
}

TEST_CASE("a training job and a serving pool on one fabric slow each other, fluid and by packet") {
    const std::string file = std::string(ORRERY_SOURCE_DIR) + "/scenarios/cluster/training-beside-serving.yaml";
    for (const char* fidelity : {"fluid", "packet"}) {
        CAPTURE(fidelity);
        // Gradients as large as they get: the uplinks are what both jobs share.
        const std::vector<std::string> changes = {std::string("network.fidelity=") + fidelity,
                                                  "cluster.fabric.oversubscription=16"};
        Scenario scenario = load_scenario(file, changes, test::data());
        const RunOutput both = run_scenario(scenario, test::model_cache(), {});
        Scenario training = scenario;
        training.as<ClusterKind>().jobs.resize(1);
        Scenario serving = scenario;
        serving.as<ClusterKind>().jobs.erase(serving.as<ClusterKind>().jobs.begin());
        const double training_alone =
            value(run_scenario(training, test::model_cache(), {}).summary, "train.iteration_time_s");
        const double transfer_alone =
            value(run_scenario(serving, test::model_cache(), {}).summary, "serve.kv_transfer_s.mean");
        CHECK(value(both.summary, "train.iteration_time_s") > training_alone);
        CHECK(value(both.summary, "serve.kv_transfer_s.mean") > 1.01 * transfer_alone);
        // The KV transfers move 40 caches over the same uplinks: what they cost the training is no more than their own time.
        CHECK(value(both.summary, "train.iteration_time_s") < training_alone + 40 * transfer_alone);
    }
}

TEST_CASE("a job beside others has no faults of its own, for its states would be priced without the others") {
    const std::string file = std::string(ORRERY_SOURCE_DIR) + "/scenarios/cluster/training-beside-serving.yaml";
    const std::vector<std::string> changes = {
        "jobs.0.scenario.faults={duration: 10 h, events: [{at: 1 h, kind: fail-stop, where: gpu0}]}"};
    std::string text;
    try {
        (void)load_scenario(file, changes, test::data());
    } catch (const ConfigError& error) {
        text = error.what();
    }
    CHECK_MESSAGE(text.find("a job beside others has no 'faults'") != std::string::npos, text);
}

TEST_CASE("a ring on nodes that do not lie as on a fabric of their own is not folded") {
    const auto seconds = [](const char* nodes, const char* fold) {
        return value(run_text(fmt::format(R"(orrery: 1
kind: cluster
cluster: {{hosts: 8, fabric: {{kind: leaf-spine, hosts_per_leaf: 4, link: 400 Gbps, latency: 1 us}}}}
network: {{fold: {}}}
jobs:
  - name: ring
    nodes: "{}"
    scenario: {{kind: collective, collective: {{op: all-reduce, algorithm: ring, size: 1 MiB}}}}
)",
                                          fold, nodes)),
                     "ring.collective_time_s");
    };
    for (const char* nodes : {"0-3", "4-6", "2-5", "0,1,4", "7,3,0"}) {
        CAPTURE(nodes);
        CHECK(seconds(nodes, "true") == doctest::Approx(seconds(nodes, "false")).epsilon(1e-12));
    }
}

TEST_CASE("the seed of a cluster reaches its jobs") {
    const std::string traffic =
        "  - {name: one, nodes: 4, scenario: {kind: network, traffic: {pattern: permutation, "
        "size: 1 MiB, spread: 50 %}}}\n";
    Scenario scenario = test::scenario(two_leaves("fidelity: fluid", traffic));
    const double first = value(run_scenario(scenario, test::model_cache(), {}).summary, "one.bytes_on_wire");
    scenario.seed = 2;
    CHECK(value(run_scenario(scenario, test::model_cache(), {}).summary, "one.bytes_on_wire") != first);
}

TEST_CASE("what is wrong with the jobs of a cluster is said with its line") {
    const auto refused = [](const std::string& jobs) { return test::refusal(two_leaves("fidelity: fluid", jobs)); };
    const std::string one = job("one", "0,2", 1);
    CHECK(refused(one + job("two", "2-3", 1)).find("test.yaml:9:") != std::string::npos);
    CHECK(refused(one + job("two", "2-3", 1)).find("node 2 of job 'two' belongs to job 'one' already") !=
          std::string::npos);
    CHECK(refused(job("one", "3", 1) + job("two", "2", 1)).find("wants 2 nodes, but only 1 of 4 are free") !=
          std::string::npos);
    CHECK(refused(job("one", "2-4", 1)).find("the cluster has nodes 0 to 3") != std::string::npos);
    CHECK(refused(job("one", "3-2", 1)).find("is a count (4) or numbers and ranges") != std::string::npos);
    CHECK(refused(one + job("one", "1,3", 1)).find("two jobs are called 'one'") != std::string::npos);
    const std::string own = refused(
        "  - {name: one, nodes: 2, scenario: {kind: network, cluster: {hosts: 2}, network: {}, "
        "traffic: {pattern: shift, size: 1 MiB}}}\n");
    CHECK(own.find("a job has no 'cluster' of its own") != std::string::npos);
    CHECK(own.find("a job has no 'network' of its own") != std::string::npos);
    CHECK(refused("  - {name: one, nodes: 2}\n").find("either a 'file' or a 'scenario'") != std::string::npos);
    CHECK(refused("  - {name: one, nodes: 2, scenario: {kind: training, model: llama-2-7b, plan: {global_batch: 1}}}\n")
              .find("training needs 'nodes' with GPUs") != std::string::npos);
    CHECK(test::refusal(two_leaves("fidelity: simgrid", one)).find("SimGrid owns its clock") != std::string::npos);
    CHECK(refused("  - {name: one, nodes: 2, scenario: {kind: cluster, jobs: []}}\n").find("cannot be a cluster") !=
          std::string::npos);
}

TEST_CASE("a cluster scenario resolves to one that reads back, and its jobs can come from files") {
    const Scenario scenario =
        test::scenario(two_leaves("fidelity: fluid", job("one", "0,2", 64) + job("two", "1,3", 32, 1e-3)));
    const Scenario again = test::scenario(resolved_json(scenario));
    CHECK(resolved_json(again) == resolved_json(scenario));
    CHECK(run_scenario(again, test::model_cache(), {}).summary.metrics ==
          run_scenario(scenario, test::model_cache(), {}).summary.metrics);
    // A file's own files are looked for beside it; a cluster of its own is refused with its line.
    const std::string folder = std::filesystem::temp_directory_path() / fmt::format("orrery-cluster-{}", getpid());
    std::filesystem::create_directories(folder + "/jobs");
    write_file(folder + "/jobs/flows.csv", "src,dst,bytes,start\n0,1,1000000,0\n");
    write_file(folder + "/jobs/traffic.yaml", "orrery: 1\nkind: network\ntraffic: {flows: flows.csv}\n");
    write_file(folder + "/jobs/whole.yaml", "kind: network\ncluster: {hosts: 2}\ntraffic: {flows: flows.csv}\n");
    const auto from = [&](const std::string& file) {
        write_file(folder + "/all.yaml",
                   two_leaves("fidelity: fluid", "  - {name: one, nodes: \"0,2\", file: jobs/" + file + "}\n"));
        return load_scenario(folder + "/all.yaml", {}, test::data());
    };
    CHECK(value(run_scenario(from("traffic.yaml"), test::model_cache(), {}).summary, "one.fct_s.max") ==
          doctest::Approx(1e6 / 25e9).epsilon(1e-9));
    CHECK_THROWS_WITH_AS((void)from("whole.yaml"), doctest::Contains("whole.yaml:2:10"), ConfigError);
    CHECK_THROWS_WITH_AS((void)from("none.yaml"), doctest::Contains("none.yaml"), ConfigError);
    std::filesystem::remove_all(folder);
}
