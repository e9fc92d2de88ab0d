// Explanations: the critical path adds up, what-ifs do what they say, differences have their causes.

#include "tools/explain/explain.hpp"
#include "models/scaled_device.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/messages.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/explain/diff.hpp"
#include "tools/explain/sensitivity.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

using namespace orrery;
using namespace orrery::test;

namespace {

const std::string kBase = std::string(ORRERY_SOURCE_DIR) + "/scenarios/training/gpt3-175b-1024xA100.yaml";

Scenario base_with(const std::vector<std::string>& overrides) {
    return load_scenario(kBase, overrides, data());
}

double path_of(const Explanation& e) {
    return std::accumulate(e.critical_path.begin(), e.critical_path.end(), 0.0,
                           [](double sum, const BlameRow& row) { return sum + row.seconds; });
}

double gain(const Explanation& e, const std::string& what_if) {
    for (const Elasticity& l : e.what_ifs) {
        if (l.what_if == what_if) {
            return l.share;
        }
    }
    return -1;
}

}  // namespace

TEST_CASE("explain: the memory that an offloaded step waits for is named, and more of its bandwidth helps most") {
    const std::string file = std::string(ORRERY_SOURCE_DIR) + "/scenarios/papers/fuyou/gpt3-175b.yaml";
    const Explanation e = explain_scenario(load_scenario(file, {}, data()), model_cache());
    CHECK(path_of(e) == doctest::Approx(e.seconds).epsilon(1e-9));
    const auto drives = [](const BlameRow& row) { return row.resource.find("nvme") != std::string::npos; };
    CHECK(std::any_of(e.critical_path.begin(), e.critical_path.end(), drives));
    CHECK(gain(e, "bandwidth of the node's memories") > 0.01);
    CHECK(e.link_use.contains("nvme"));
}

TEST_CASE("explain: kernels by name add up to what the passes of a rank are booked with") {
    const Scenario scenario = base_with({});  // nothing runs beside its passes
    const Explanation e = explain_scenario(scenario, model_cache());
    double kernels = 0;
    double tensor = 0;
    double launched = 0;
    for (const KernelRow& row : e.kernels) {
        const bool kernel = row.stream == "kernels";
        kernels += kernel && !row.pass.empty() ? row.seconds : 0;  // not the optimizer's
        tensor += kernel ? 0 : row.seconds;
        launched += row.name == "softmax" ? row.count : 0;
    }
    const RunOutput out = run_scenario(scenario, model_cache(), RunOptions());
    double booked = 0;
    double exchanged = 0;
    for (const auto& [name, seconds] : out.summary.breakdown) {
        booked += name == "forward" || name == "backward" || name == "recompute" ? seconds : 0;
        exchanged += name == "tensor communication" ? seconds : 0;
    }
    CHECK(kernels == doctest::Approx(booked).epsilon(1e-6));
    CHECK(tensor == doctest::Approx(exchanged).epsilon(1e-6));
    // Each layer of a stage attends once in each pass of each micro-batch, and once more as it is computed again.
    const double passes = static_cast<double>(scenario.as<TrainingKind>().plan.micro_batches());
    const double layers = static_cast<double>(scenario.as<TrainingKind>().model.layers) /
                          static_cast<double>(scenario.as<TrainingKind>().plan.pipeline);
    CHECK(launched == doctest::Approx(3 * passes * layers));
}

TEST_CASE("explain: the critical path adds up to the iteration, and parts of it never exceed it") {
    for (const std::vector<std::string>& overrides :
         {std::vector<std::string>{},
          {"plan.pipeline=8", "plan.data=16", "plan.overlap.data=true"},
          {"plan.schedule=interleaved", "plan.chunks=3", "plan.zero=1"},
          {"network.fidelity=analytic"},
          {"plan.pipeline=1", "plan.data=128", "plan.zero=3", "plan.overlap.data=true"}}) {
        const Explanation e = explain_scenario(base_with(overrides), model_cache());
        CHECK(path_of(e) == doctest::Approx(e.seconds).epsilon(1e-9));
        for (const HiddenRow& row : e.hidden) {
            CHECK(row.exposed_s >= 0);
            CHECK(row.busy_s > 0);
        }
        for (const Elasticity& what_if : e.what_ifs) {
            CHECK(what_if.share <= 1.0001);
        }
    }
}

TEST_CASE("explain: what a run is made of is what bounds it") {
    // Arithmetic alone: a roofline, ideal links, no overheads.
    const std::vector<std::string> ideal = {"compute.model=roofline",
                                            "network.collectives=ideal",
                                            "software.launch=0 s",
                                            "software.step_overhead=0 s",
                                            "cluster.node.intra_bandwidth=100 TB/s",
                                            "cluster.node.nic_bandwidth=100 TB/s",
                                            "cluster.fabric.link=100 TB/s",
                                            "cluster.node.pcie_bandwidth=100 TB/s"};
    const Explanation compute = explain_scenario(base_with(ideal), model_cache());
    CHECK(compute.what_ifs[0].what_if == "arithmetic rate");
    CHECK(gain(compute, "arithmetic rate") + gain(compute, "memory bandwidth") == doctest::Approx(1).epsilon(0.03));
    CHECK(compute.verdict.rfind("Arithmetic rate limits this run", 0) == 0);
    // A thousandth of the rate between nodes: it bounds the run.
    const Explanation network = explain_scenario(
        base_with({"cluster.node.nic_bandwidth=0.2 Gbps", "cluster.fabric.link=0.2 Gbps"}), model_cache());
    CHECK_MESSAGE(network.what_ifs[0].what_if == "bandwidth between nodes", network.verdict);
    for (const PhaseBound& phase : network.phases) {
        if (phase.phase == "data_communication") {
            CHECK(phase.bound == "bandwidth between nodes");
            CHECK(phase.share > 0.9);
        }
    }
    // A collective has what-ifs too.
    const Explanation ring = explain_scenario(
        scenario(
            "orrery: 1\nkind: collective\ncluster: {hosts: 64, fabric: {link: 100 Gbps}}\ncollective: {op: all-reduce, "
            "size: 64 MiB, algorithm: ring}\n"),
        model_cache());
    CHECK(ring.what_ifs[0].what_if == "bandwidth between nodes");
    CHECK(ring.what_ifs[0].share == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("explain: a faster host shortens the wait for the tokens of experts by as much") {
    const Explanation e = explain_scenario(scenario(R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-h100}
model: {layers: 4, hidden: 1024, heads: 8, vocabulary: 1024, sequence: 1024, experts: {count: 16, topk: 2, ffn: 1024}}
plan: {data: 8, global_batch: 64, expert: 8}
software: {preset: megatron-core-2024, expert_wait: 1 s, step_overhead: 0 s}
)"),
                                           model_cache());
    // Four layers and eight micro-batches of a second each are nearly all of it.
    CHECK(e.seconds > 32);
    CHECK(gain(e, "lower host overhead") == doctest::Approx(1).epsilon(0.01));
}

TEST_CASE("explain: a scaled device scales what binds a kernel, and nothing else") {
    const Scenario s = scenario(kSmallTraining);
    const DeviceSpec& gpu = s.cluster.node.gpu;
    const CostModel& base = model_cache().device(gpu, ComputeKind::calibrated);
    const Gemm large{8192, 8192, 8192};
    const Gemm thin{1, 16384, 16384};
    const double launch = gpu.launch.value;
    const auto net = [&](const CostModel& model, const auto& operation) {
        return model.seconds(operation).value() - launch;
    };
    const ScaledDevice arithmetic(base, gpu, 2, 1);
    const ScaledDevice memory(base, gpu, 1, 2);
    CHECK(net(arithmetic, large) == doctest::Approx(net(base, large) / 2));
    CHECK(net(memory, large) == doctest::Approx(net(base, large)));
    CHECK(net(arithmetic, thin) == doctest::Approx(net(base, thin)));
    CHECK(net(memory, thin) == doctest::Approx(net(base, thin) / 2));
    CHECK(net(memory, Streaming{1e9, 1}) == doctest::Approx(net(base, Streaming{1e9, 1}) / 2));
}

TEST_CASE("explain: of a collective's messages, the chain to the last one adds up, each part where it belongs") {
    const char* base =
        "orrery: 1\nkind: collective\ncluster: {hosts: 16, fabric: {hosts_per_leaf: 4, spines: 4, link: 100 Gbps, "
        "latency: "
        "1 us}}\ncollective: {op: all-reduce, size: 16 MiB, algorithm: ring}\nnetwork: {fidelity: %}\n";
    for (const char* fidelity : {"fluid", "analytic", "packet"}) {
        std::string text = base;
        text.replace(text.find('%'), 1, fidelity);
        const Explanation e = explain_scenario(scenario(text), model_cache());
        CHECK_MESSAGE(path_of(e) == doctest::Approx(e.seconds).epsilon(1e-6), fidelity);
        REQUIRE(e.last);
        CHECK(e.last->propagation_s + e.last->serialisation_s + e.last->contention_s ==
              doctest::Approx(e.last->seconds).epsilon(1e-9));
    }
    // Thirty steps of 1 MiB: neighbours never share a link, so that a step is its latency and its transfer.
    std::string text = base;
    text.replace(text.find('%'), 1, "fluid");
    const Explanation e = explain_scenario(scenario(text), model_cache());
    REQUIRE(e.critical_path.size() >= 2);
    CHECK(e.critical_path[0].resource == "NIC out");
    CHECK(e.critical_path[0].seconds == doctest::Approx(30 * (16.0 * 1024 * 1024 / 16) / 12.5e9).epsilon(1e-6));
    CHECK(e.critical_path[1].resource == "latency");
    // Sums inside the switches are one message with the links of its tree.
    const Explanation tree = explain_scenario(
        load_scenario(std::string(ORRERY_SOURCE_DIR) + "/scenarios/collective/in-switch-32-nodes.yaml", {}, data()),
        model_cache());
    CHECK(path_of(tree) == doctest::Approx(tree.seconds).epsilon(1e-6));
    CHECK(std::any_of(tree.critical_path.begin(), tree.critical_path.end(),
                      [](const BlameRow& row) { return row.operation == "in-network reduction"; }));
    // A slow rank, whose messages are not kept, sets the pace by its own link.
    Scenario slow = scenario(text);
    slow.as<CollectiveKind>().collective.slow_rank = 3;
    slow.as<CollectiveKind>().collective.slow_factor = 0.25;
    const Explanation paced = explain_scenario(slow, model_cache());
    CHECK(paced.critical_path[0].resource == "the slow rank");
    CHECK(path_of(paced) == doctest::Approx(paced.seconds).epsilon(1e-6));
}

TEST_CASE("explain: the slowest flow, its links and its share of them") {
    // Three senders to one receiver: each has a third of its link.
    const std::string text =
        "orrery: 1\nkind: network\ncluster: {hosts: 8, fabric: {hosts_per_leaf: 8, spines: 1, link: 100 Gbps, latency: "
        "1 "
        "us}}\ntraffic: {pattern: incast, senders: 3, size: 8 MiB}\nnetwork: {fidelity: fluid}\n";
    const Explanation e = explain_scenario(scenario(text), model_cache());
    REQUIRE(e.last);
    const LastMessage& last = *e.last;
    const LinkShare& link = last.links.at(last.bottleneck);
    CHECK(link.link.rfind("NIC in", 0) == 0);
    CHECK(link.flows == 3);
    CHECK(link.use == doctest::Approx(1).epsilon(0.01));
    CHECK(link.own == doctest::Approx(1.0 / 3).epsilon(0.01));
    CHECK(last.serialisation_s == doctest::Approx(8.0 * 1024 * 1024 / 12.5e9).epsilon(1e-6));
    CHECK(last.contention_s == doctest::Approx(2 * last.serialisation_s).epsilon(1e-6));
    CHECK_MESSAGE(e.verdict.rfind("Bandwidth between nodes limits this run", 0) == 0, e.verdict);
    // Alone on the network a flow of packets waits for nobody, and queues are what is left with others.
    const auto packets = [&](int senders) {
        Scenario s = scenario(text);
        s.network.fidelity = Fidelity::packet;
        s.as<NetworkKind>().traffic.senders = senders;
        return *explain_scenario(s, model_cache()).last;
    };
    CHECK(packets(1).contention_s == 0);
    const LastMessage shared = packets(3);
    CHECK(shared.contention_s > shared.serialisation_s);
}

TEST_CASE("explain: a what-if of a packet run counts only beyond its noise, and has the right sign") {
    const auto explained = [](const char* paths, double latency) {
        return explain_scenario(
            scenario(fmt::format("orrery: 1\nkind: network\ncluster: {{hosts: 32, fabric: {{hosts_per_leaf: 8, "
                                 "spines: 8, link: 100 Gbps, latency: {} us}}}}\ntraffic: {{pattern: "
                                 "permutation, size: 1 MiB}}\nnetwork: {{fidelity: packet, paths: {}, transport: "
                                 "{{kind: multipath, window: 40000 B}}}}\n",
                                 latency, paths)),
            model_cache());
    };
    for (const char* paths : {"ecmp", "oblivious"}) {
        const Explanation e = explained(paths, 0.5);
        CHECK(e.replicas > 5);
        CHECK(gain(e, "bandwidth between nodes") > 0);
        for (const Elasticity& what_if : e.what_ifs) {
            CHECK(what_if.noise_s >= 0);
            // With a given window these what-ifs make nothing slower but by chance, and chance does not count.
            CHECK_MESSAGE((!what_if.certain() || what_if.gain_s > 0), what_if.what_if);
        }
    }
    // Where latency is nearly nothing, so is its what-if, and whatever lies within its noise comes after what counts.
    const Explanation e = explained("ecmp", 0.001);
    CHECK(e.what_ifs.at(0).what_if == "bandwidth between nodes");
    CHECK(e.what_ifs.at(0).certain());
    CHECK(std::abs(e.what_ifs.at(1).gain_s) < 0.01 * e.seconds);
    const Elasticity unclear{"a what-if", 1e-6, 0, 2e-6, {}};
    CHECK(!unclear.certain());
}

TEST_CASE(
    "explain: more bandwidth between nodes helps whatever the topology calls its links, which carry no more than they "
    "can") {
    for (const char* fabric :
         {"{kind: graph, link: 50 GB/s, switches: [{name: a, nodes: 4}, {name: b, nodes: 4}, {name: c}, {name: d}], "
          "links: [{from: a, "
          "to: "
          "c, link: 5 GB/s}, {from: a, to: d, link: 5 GB/s}, {from: c, to: b, link: 5 GB/s}, {from: d, to: b, link: 5 "
          "GB/s}]}",
          "{kind: torus, link: 50 GB/s, shape: 8, neighbour_link: 5 GB/s}",
          "{kind: multi-level, link: 50 GB/s, levels: [{kind: ring, size: 4, link: 5 GB/s}, {kind: ring, size: 2, "
          "link: 2 GB/s}]}"}) {
        CAPTURE(fabric);
        const Explanation e = explain_scenario(
            scenario(fmt::format("orrery: 1\nkind: collective\ncluster: {{hosts: 8, fabric: {}}}\ncollective: {{op: "
                                 "all-to-all, algorithm: direct, size: 64 MiB}}\nnetwork: {{fidelity: fluid}}\n",
                                 fabric)),
            model_cache());
        CHECK(gain(e, "bandwidth between nodes") > 0.08 * e.seconds);
        REQUIRE(e.last);
        for (const LinkShare& link : e.last->links) {
            CHECK(link.use <= 1 + 1e-9);
        }
        double most = 0;
        for (const auto& [kind, use] : e.link_use) {
            most = std::max(most, use);
            CHECK(use <= 1 + 1e-9);
        }
        CHECK(most > 0.9);
        CHECK(most == *std::max_element(e.link_loads.begin(), e.link_loads.end()));
    }
}

TEST_CASE("explain: the links of a packet run are as busy as its ports say") {
    for (const char* fabric : {"{hosts_per_leaf: 4, spines: 2, link: 10 GB/s}",
                               "{kind: fat-tree, hosts_per_leaf: 2, leaf_groups_per_pod: 2, link: 10 GB/s}"}) {
        CAPTURE(fabric);
        const Scenario traffic = scenario(
            fmt::format("orrery: 1\nkind: network\ncluster: {{hosts: 8, fabric: {}}}\ntraffic: {{pattern: permutation, "
                        "size: 4 MB}}\nnetwork: {{fidelity: packet, paths: ecmp}}\n",
                        fabric));
        const Explanation e = explain_scenario(traffic, model_cache());
        CHECK(*std::max_element(e.link_loads.begin(), e.link_loads.end()) ==
              doctest::Approx(run_scenario(traffic, model_cache(), {}).summary.find("max_link_utilisation")->value)
                  .epsilon(1e-9));
    }
}

TEST_CASE("explain: a replay's critical path adds up by kind and stream") {
    const std::string file = std::string(ORRERY_SOURCE_DIR) + "/scenarios/replay/two-layer-step.yaml";
    const Explanation e = explain_scenario(load_scenario(file, {}, data()), model_cache());
    CHECK(path_of(e) == doctest::Approx(e.seconds).epsilon(1e-9));
    CHECK(e.critical_path[0].operation == "kernel");
    CHECK(e.critical_path[0].resource == "stream 7");
    CHECK(e.longest.at(0).operation == "gemm_backward");
    CHECK_MESSAGE(e.verdict.rfind("Kernel speed limits this run", 0) == 0, e.verdict);
    // Twice as fast kernels are at most half as long on the path; what they hid may come to light.
    const Explanation faster = explain_scenario(load_scenario(file, {"replay.kernel_speed=2"}, data()), model_cache());
    CHECK(faster.critical_path[0].seconds <= e.critical_path[0].seconds / 2 * (1 + 1e-9));
    CHECK(path_of(faster) == doctest::Approx(faster.seconds).epsilon(1e-9));
}

TEST_CASE("explain: the parts of requests add up to what was measured of them, and name what a change brings") {
    const auto sum = [](const Explanation& e, RequestPart::Split RequestPart::*metric,
                        double RequestPart::Split::*which) {
        double out = 0;
        for (const RequestPart& part : e.requests) {
            out += part.*metric.*which;
        }
        return out;
    };
    const auto share = [&](const Explanation& e, const std::string& name, RequestPart::Split RequestPart::*metric) {
        for (const RequestPart& part : e.requests) {
            if (part.part == name) {
                return (part.*metric).mean / sum(e, metric, &RequestPart::Split::mean);
            }
        }
        return 0.0;
    };
    const std::string folder = std::string(ORRERY_SOURCE_DIR) + "/scenarios/serving/";
    for (const char* name : {"llama-2-70b-conversations", "split-phases-70b", "pipeline-70b", "deepseek-v3-experts"}) {
        const Scenario s = load_scenario(folder + name + ".yaml", {"requests.count=200"}, data());
        const Explanation e = explain_scenario(s, model_cache());
        const Summary summary = run_scenario(s, model_cache(), {}).summary;
        CHECK(sum(e, &RequestPart::ttft, &RequestPart::Split::mean) ==
              doctest::Approx(summary.find("ttft_s.mean")->value).epsilon(1e-5));
        CHECK(sum(e, &RequestPart::tpot, &RequestPart::Split::mean) ==
              doctest::Approx(summary.find("tpot_s.mean")->value).epsilon(1e-5));
        CHECK(sum(e, &RequestPart::e2e, &RequestPart::Split::mean) ==
              doctest::Approx(summary.find("e2e_s.mean")->value).epsilon(1e-5));
        // The tail lies between the percentile that it starts at and the largest value.
        CHECK(sum(e, &RequestPart::e2e, &RequestPart::Split::tail) >= summary.find("e2e_s.p99")->value * (1 - 1e-5));
        CHECK(sum(e, &RequestPart::e2e, &RequestPart::Split::tail) <= summary.find("e2e_s.max")->value * (1 + 1e-5));
        for (const IterationMix& mix : e.iterations) {
            double whole = 0;
            for (const auto& [part, one] : mix.shares) {
                whole += one;
            }
            CHECK_MESSAGE(whole == doctest::Approx(1).epsilon(1e-6), name << " " << mix.kind);
            // Operations are all of it that is no stage, swap or draft.
            double named = 0;
            for (const auto& [operation, one] : mix.operations) {
                named += one;
            }
            CHECK_MESSAGE(named <= whole * (1 + 1e-6), name << " " << mix.kind);
            CHECK(named > 0.5);
            CHECK(std::is_sorted(mix.operations.begin(), mix.operations.end(),
                                 [](const auto& a, const auto& b) { return a.second > b.second; }));
        }
        // Without pipelines, swaps and drafts every second of an iteration belongs to a kernel, the network or the host.
        if (s.as<ServingKind>().engine.mixed.pipeline == 1) {
            CHECK(share(e, "pipeline stages, swaps, drafts", &RequestPart::e2e) < 1e-6);
        }
        CHECK((share(e, "experts", &RequestPart::e2e) > 0) == (s.as<ServingKind>().model.experts.count > 0));
        CHECK((share(e, "KV transfer to a decode replica", &RequestPart::tpot) > 0) ==
              s.as<ServingKind>().engine.split);
        CHECK(share(e, "KV transfer to a decode replica", &RequestPart::ttft) == 0);
    }
    // All requests at once: the first token waits in the queue, and less load is no what-if of it.
    const Explanation burst = explain_scenario(
        load_scenario(folder + "llama-2-70b-conversations.yaml",
                      {"requests={arrivals: at-once, count: 2000, prompt: {mean: 500}, output: {mean: 20}}"}, data()),
        model_cache());
    CHECK(share(burst, "queue before the first iteration", &RequestPart::ttft) > 0.5);
    CHECK(burst.verdict.find("queue") != std::string::npos);
}

TEST_CASE("diff: names inputs, their effects, where time moved and the first record that differs") {
    const RunDifference same = compare_runs(base_with({}), base_with({}), model_cache());
    CHECK(same.inputs.empty());
    CHECK(same.first_record.empty());
    CHECK(same.equal_records > 1000);
    const RunDifference d =
        compare_runs(base_with({}), base_with({"plan.recompute=selective", "seed=2"}), model_cache());
    REQUIRE(d.inputs.size() == 2);
    CHECK(d.inputs[0].input.path == "plan.recompute");
    CHECK(*d.inputs[0].seconds == doctest::Approx(d.second_s - d.first_s).epsilon(1e-9));
    CHECK(*d.inputs[1].seconds == 0);
    double moved = 0;
    for (const auto& [part, before, after] : d.breakdown) {
        moved += after - before;
    }
    CHECK(moved == doctest::Approx(d.second_s - d.first_s).epsilon(1e-9));
    CHECK(!d.first_record.empty());
    CHECK(d.first_record.find("backward") != std::string::npos);
    const Outcome out = orrery_command("diff " + kBase + " --set plan.micro_batch=2");
    CHECK(out.code == 0);
    CHECK_MESSAGE(out.text.find("plan.micro_batch") != std::string::npos, out.text);
    const Outcome explained = orrery_command("explain " + kBase);
    CHECK(explained.text.find("what would help") != std::string::npos);
}

TEST_CASE(
    "sensitivity: a constant that is all of a run moves it by as much, in both directions, and others are counted") {
    // A message of one byte between nodes takes the latency and nothing that could be seen beside it.
    const Scenario scenario = read_scenario(
        parse_yaml("orrery: 1\nkind: network\n"
                   "cluster:\n  nodes: 2\n  node:\n    preset: dgx-a100-80g\n    gpus: 1\n    nics: 1\n    "
                   "intra_latency: 1 us\n"
                   "    nic_latency: {value: 5 us, how: spec, source: (recalled)}\n"
                   "    gpu: {preset: a100-sxm-80g, launch: {value: 5 us, how: assumed, source: nobody}}\n"
                   "  fabric: {nodes_per_leaf: 2, rails: 1, latency: 0 s}\n"
                   "traffic: {pattern: permutation, size: 1 B}\n",
                   "given"),
        "given", data());
    const Sensitivity s = sensitivity_of(scenario, data());
    REQUIRE(s.moving.size() == 1);
    CHECK(s.moving[0].path == "cluster.node.nic_latency");
    CHECK(s.moving[0].how == "recalled");
    CHECK(s.moving[0].lower == doctest::Approx(-0.2).epsilon(1e-3));
    CHECK(s.moving[0].higher == doctest::Approx(0.2).epsilon(1e-3));
    CHECK(s.without_effect == 1);  // the launch of a kernel
}
