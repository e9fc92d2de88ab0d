// States and activations in memories of the node: closed forms of their copies and updates, and what a plan must say.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/memory/memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace orrery;

namespace {

constexpr const char* kDram = "{name: dram, medium: dram, capacity: 4 TB, read: 100 GB/s}";

// GPUs of one node with such tiers, each on a PCIe link of a rate.
Scenario job(const std::string& offload, const std::string& host = fmt::format("tiers: [{}]", kDram),
             const std::string& link = "20 GB/s", const std::string& plan = "data: 1", int gpus = 1, int nodes = 1) {
    return test::scenario(fmt::format(
        "orrery: 1\nkind: training\n"
        "cluster: {{nodes: {}, node: {{preset: dgx-a100-80g, gpus: {}, pcie_bandwidth: {}, host: {{{}}}}}, fabric: "
        "{{rails: 8}}}}\n"
        "model: {{layers: 16, hidden: 2048, heads: 16, vocabulary: 1000, sequence: 1024}}\n"
        "plan: {{{}, global_batch: {}, micro_batch: 4, recompute: full, overlap: {{data: true}}{}}}\n",
        nodes, gpus, link, host, plan, 4 * gpus * nodes, offload.empty() ? "" : ", offload: {" + offload + "}"));
}

RunOutput run_of(const Scenario& scenario) {
    return run_scenario(scenario, test::model_cache(), {});
}
double metric(const RunOutput& out, const char* name) {
    return out.summary.find(name)->value;
}
double seconds(const Scenario& scenario) {
    return metric(run_of(scenario), "iteration_time_s");
}

double weights(const Scenario& s) {
    const auto& training = s.as<TrainingKind>();
    return weights_of(training.model, training.plan, mix_of(training.model, 0, training.model.layers), 1).total();
}

std::string refused(const Scenario& scenario) {
    try {
        (void)run_of(scenario);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("what is away is not in the memory of the device, and fills the tier") {
    const Scenario here = job("");
    const Scenario away = job("optimizer: {tier: dram}");
    constexpr double kGib = 1024.0 * 1024 * 1024;
    const RunOutput before = run_of(here);
    const RunOutput after = run_of(away);
    CHECK(metric(before, "memory_per_gpu_gib") - metric(after, "memory_per_gpu_gib") ==
          doctest::Approx(12 * weights(here) / kGib));
    CHECK(metric(after, "tier_gib.dram") == doctest::Approx(12 * weights(here) / kGib));
    const RunOutput half = run_of(job("optimizer: {tier: dram, fraction: 0.5}"));
    CHECK(metric(half, "tier_gib.dram") == doctest::Approx(6 * weights(here) / kGib));
}

TEST_CASE("an update by the host takes the bytes of Adam over the bandwidth of its memory") {
    const Scenario s = job("optimizer: {tier: dram}", fmt::format("tiers: [{}]", kDram), "10 TB/s");
    // 12 B of states and the gradient are read, 12 B and the weight in 16 bits written: 28 B a weight. The last layer's copy to the
    // device, at 100 GB/s of DRAM, comes after.
    const double update = 28 * weights(s) / 100e9;
    const RunOutput out = run_of(s);
    const double waited = metric(out, "exposed_update_s") + metric(out, "exposed_copies_s");
    CHECK(waited > update);
    // Copies of weights to the device share DRAM with the updates after theirs.
    CHECK(waited < update + 6 * weights(s) / 100e9);
    double sum = 0;
    for (const auto& [name, time] : out.summary.breakdown) {
        sum += time;
    }
    CHECK(sum == doctest::Approx(metric(out, "iteration_time_s")).epsilon(1e-6));
}

TEST_CASE("behind the backward pass or the next step an update costs the larger of both, and a fill") {
    const std::string host = fmt::format("cores: 1, core_bandwidth: 20 GB/s, tiers: [{}]", kDram);
    const auto with = [&](const char* step) {
        return run_of(job(fmt::format("optimizer: {{tier: dram}}, step: {}", step), host, "1 TB/s"));
    };
    const double update = 28 * weights(job("")) / 20e9;
    const RunOutput synchronous = with("synchronous");
    const double passes = metric(synchronous, "iteration_time_s") - metric(synchronous, "exposed_update_s") -
                          metric(synchronous, "exposed_copies_s");
    const double delayed = metric(with("delayed"), "iteration_time_s");
    const double pipelined = metric(with("pipelined"), "iteration_time_s");
    CHECK(metric(synchronous, "iteration_time_s") > passes + update);
    CHECK(delayed >= std::max(passes, update));
    CHECK(delayed < 1.05 * std::max(passes, update));
    CHECK(pipelined > delayed);
    CHECK(pipelined < metric(synchronous, "iteration_time_s"));
}

TEST_CASE("fetched weights hide behind computation until the link is the slower of the two") {
    const std::string offload = "parameters: {tier: dram}";
    const double here = seconds(job(""));
    const Scenario fast = job(offload, fmt::format("tiers: [{}]", kDram), "100 GB/s");
    CHECK(seconds(fast) < 1.1 * here);
    // Twice 2 B a weight, forward and backward, over 1 GB/s; in front of it no more than the start, behind it a layer's pass.
    const Scenario slow = job(offload, fmt::format("tiers: [{}]", kDram), "1 GB/s");
    const double copies = 4 * weights(slow) / 1e9;
    CHECK(seconds(slow) >= copies);
    CHECK(seconds(slow) < copies + here);
}

TEST_CASE("devices behind one switch fetch at a share of its rate each") {
    const auto with = [&](const char* shared) {
        return seconds(job("parameters: {tier: dram}", fmt::format("{}tiers: [{}]", shared, kDram), "1 GB/s",
                           "data: 2, zero: 3", 2));
    };
    const double apart = with("");
    const double together = with("devices_per_switch: 2, ");
    const double copies = 4 * weights(job("")) / 2 / 1e9;  // a rank's shares
    CHECK(together - apart == doctest::Approx(copies).epsilon(0.05));
}

TEST_CASE("states on drives are read and written at their rates") {
    const std::string host = fmt::format(
        "tiers: [{}, {{name: nvme, medium: nvme, units: 2, capacity: 4 TB, read: 2 GB/s, write: 1 GB/s}}]", kDram);
    const Scenario s = job("optimizer: {tier: nvme}", host, "1 TB/s");
    // Reads and writes share the drives: 12 B a weight at 4 GB/s and 12 at 2.
    const double drives = 12 * weights(s) / 4e9 + 12 * weights(s) / 2e9;
    const RunOutput out = run_of(s);
    const double waited = metric(out, "exposed_update_s") + metric(out, "exposed_copies_s");
    CHECK(waited >= drives);
    CHECK(waited < 1.1 * drives);
}

TEST_CASE("activations that are away leave room, and come back before they are needed") {
    const RunOutput here = run_of(job(""));
    const RunOutput away = run_of(job("activations: {tier: dram}, prefetch: 0"));
    CHECK(metric(away, "memory_per_gpu_gib") < metric(here, "memory_per_gpu_gib"));
    CHECK(metric(away, "tier_gib.dram") > 0);
    CHECK(metric(away, "iteration_time_s") > metric(here, "iteration_time_s"));
}

TEST_CASE("an offloading job takes the same time folded and rank by rank") {
    const std::string offload = "optimizer: {tier: dram}, parameters: {tier: dram}, gradients: {tier: dram}";
    Scenario s = job(offload, fmt::format("tiers: [{}]", kDram), "20 GB/s", "data: 16, zero: 3", 8, 2);
    const double folded = seconds(s);
    s.network.fold = false;
    CHECK(seconds(s) == doctest::Approx(folded).epsilon(1e-9));
}

TEST_CASE("a plan without its tier, or with one too small, is refused with names and numbers") {
    CHECK(refused(job("optimizer: {tier: drm}")).find("did you mean 'dram'") != std::string::npos);
    CHECK(refused(job("optimizer: {tier: dram}", "cores: 8")).find("0 tiers") != std::string::npos);
    const std::string small =
        refused(job("optimizer: {tier: dram}", "tiers: [{name: dram, medium: dram, capacity: 1 GB, read: 1 GB/s}]"));
    CHECK(small.find("ranks of a node place") != std::string::npos);
    CHECK(small.find("which holds") != std::string::npos);
    CHECK(refused(job("gradients: {tier: dram}")).find("needs offload.optimizer") != std::string::npos);
    CHECK(refused(job("step: delayed")).find("names none of") != std::string::npos);
    CHECK(refused(job("optimizer: {tier: dram}", fmt::format("tiers: [{}]", kDram), "20 GB/s", "data: 2", 2))
              .find("needs zero: 2 or 3") != std::string::npos);
}
