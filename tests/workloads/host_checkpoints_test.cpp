// Inputs of layers in the memory of the host: what the device keeps, and what copies take.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/memory/memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

using test::metric;

constexpr double kInput = 2.0 * 4096 * 2048 * 2;  // B: sequence, width, two sequences in 16 bits

Scenario job(const std::string& more, const std::string& link = "64 GB/s", int pipeline = 1) {
    return test::scenario(
        fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 1, node: {{preset: dgx-h100, gpus: {}, "
                    "pcie_bandwidth: {}}}}}\n"
                    "model: {{layers: 16, hidden: 2048, heads: 16, vocabulary: 1000, sequence: 4096}}\n"
                    "plan: {{pipeline: {}, micro_batch: 2, global_batch: 16{}}}\n",
                    pipeline, link, pipeline, more));
}

double activations(const Scenario& s, std::size_t stage = 0) {
    const auto& training = s.as<TrainingKind>();
    return memory_by_stage(training.model, training.plan, training.software).at(stage).activations;
}

}  // namespace

TEST_CASE("the device keeps two inputs of all that are on the host") {
    const double here = activations(job(", recompute: full"));
    CHECK(here - activations(job(", recompute: full, host_checkpoints: {}")) == doctest::Approx(14 * kInput));
    CHECK(here - activations(job(", recompute: full, host_checkpoints: {layers: 6}")) == doctest::Approx(4 * kInput));
    // One layer's input on the host takes as much room on its way.
    CHECK(activations(job(", recompute: full, host_checkpoints: {layers: 1}")) == doctest::Approx(here));
    // The first of four stages holds four micro-batches of four layers.
    const double first = activations(job(", recompute: full", "64 GB/s", 4));
    CHECK(first - activations(job(", recompute: full, host_checkpoints: {}", "64 GB/s", 4)) ==
          doctest::Approx((4 * 4 - 2) * kInput));
    CHECK(first - activations(job(", recompute: full, host_checkpoints: {layers: 2}", "64 GB/s", 4)) ==
          doctest::Approx((4 * 2 - 2) * kInput));
}

TEST_CASE("copies hide behind passes, and a slow link is what a step takes") {
    const double here = metric(job(", recompute: full"), "iteration_time_s");
    const double hidden = metric(job(", recompute: full, host_checkpoints: {}"), "iteration_time_s");
    CHECK(hidden >= here);
    CHECK(hidden < 1.05 * here);
    // Out and back, of 16 layers and 8 micro-batches; the tables' passes and the update have no copy beside them.
    const double copies = 2 * 16 * 8 * kInput / 1e9;
    const double slow = metric(job(", recompute: full, host_checkpoints: {}", "1 GB/s"), "iteration_time_s");
    CHECK(slow > copies);
    CHECK(slow < copies + here);
    const double half = metric(job(", recompute: full, host_checkpoints: {layers: 8}", "1 GB/s"), "iteration_time_s");
    CHECK(half > copies / 2);
    CHECK(half < copies / 2 + here);
}

TEST_CASE("host checkpoints are refused where layers keep more than their inputs, or nothing leads to the host") {
    const auto refused = [](const Scenario& s) {
        try {
            (void)run_scenario(s, test::model_cache(), {});
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(refused(job(", host_checkpoints: {}")).find("needs recompute: full") != std::string::npos);
    CHECK(refused(job(", recompute: full, host_checkpoints: {}, offload: {activations: {tier: dram}}"))
              .find("host_checkpoints cannot be combined with offload") != std::string::npos);
}
