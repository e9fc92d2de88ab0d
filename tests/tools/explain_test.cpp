// Explanations: the critical path adds up, levers do what they say, differences have their causes.

#include "tools/explain/explain.hpp"
#include "models/scaled_device.hpp"
#include "tests/support/command.hpp"
#include "tests/support/support.hpp"
#include "tools/explain/diff.hpp"

#include <doctest/doctest.h>

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

double gain(const Explanation& e, const std::string& lever) {
    for (const Elasticity& l : e.levers) {
        if (l.lever == lever) {
            return l.share;
        }
    }
    return -1;
}

}  // namespace

TEST_CASE("explain: the critical path adds up to the iteration, and parts of it never exceed it") {
    for (const std::vector<std::string>& overrides :
         {std::vector<std::string>{},
          {"plan.pipeline=8", "plan.data=16", "plan.overlap.data=true"},
          {"plan.schedule=interleaved", "plan.chunks=3", "plan.zero=1"},
          {"network.fidelity=analytic"},
          {"plan.pipeline=1", "plan.data=128", "plan.zero=3", "plan.overlap.data=true"}}) {
        const Explanation e = explain(base_with(overrides), models());
        CHECK(path_of(e) == doctest::Approx(e.seconds).epsilon(1e-9));
        for (const HiddenRow& row : e.hidden) {
            CHECK(row.exposed_s >= 0);
            CHECK(row.busy_s > 0);
        }
        for (const Elasticity& lever : e.levers) {
            CHECK(lever.share <= 1.0001);
        }
    }
}

TEST_CASE("explain: what a run is made of is what bounds it") {
    // Arithmetic alone: a roofline, ideal links, no overheads.
    const std::vector<std::string> ideal = {"compute.model=roofline",
                                            "network.collectives=ideal",
                                            "software.layer_overhead=0 s",
                                            "software.step_overhead=0 s",
                                            "cluster.node.intra_bandwidth=100 TB/s",
                                            "cluster.node.nic_bandwidth=100 TB/s",
                                            "cluster.fabric.link=100 TB/s",
                                            "cluster.node.pcie_bandwidth=100 TB/s"};
    const Explanation compute = explain(base_with(ideal), models());
    CHECK(compute.levers[0].lever == "arithmetic rate");
    CHECK(gain(compute, "arithmetic rate") + gain(compute, "memory bandwidth") == doctest::Approx(1).epsilon(0.03));
    CHECK(compute.verdict.rfind("Arithmetic rate limits this run", 0) == 0);
    // A thousandth of the rate between nodes: it bounds the run.
    const Explanation network =
        explain(base_with({"cluster.node.nic_bandwidth=0.2 Gbps", "cluster.fabric.link=0.2 Gbps"}), models());
    CHECK_MESSAGE(network.levers[0].lever == "bandwidth between nodes", network.verdict);
    for (const PhaseBound& phase : network.phases) {
        if (phase.phase == "data_communication") {
            CHECK(phase.bound == "bandwidth between nodes");
            CHECK(phase.share > 0.9);
        }
    }
    // A collective has levers too.
    const Explanation ring = explain(
        scenario(
            "orrery: 1\nkind: collective\ncluster: {hosts: 64, fabric: {link: 100 Gbps}}\ncollective: {op: all-reduce, "
            "size: 64 MiB, algorithm: ring}\n"),
        models());
    CHECK(ring.levers[0].lever == "bandwidth between nodes");
    CHECK(ring.levers[0].share == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("explain: a scaled device scales what binds a kernel, and nothing else") {
    const Scenario s = scenario(kSmallTraining);
    const DeviceSpec& gpu = s.cluster.node.gpu;
    const CostModel& base = models().device(gpu, ComputeKind::calibrated);
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

TEST_CASE("diff: names inputs, their effects, where time moved and the first record that differs") {
    const RunDifference same = compare_runs(base_with({}), base_with({}), models());
    CHECK(same.inputs.empty());
    CHECK(same.first_record.empty());
    CHECK(same.equal_records > 1000);
    const RunDifference d = compare_runs(base_with({}), base_with({"plan.recompute=selective", "seed=2"}), models());
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
