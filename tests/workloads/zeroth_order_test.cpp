// Steps of two forward passes: closed forms of their traffic and memory, and what a plan must say.

#include "workloads/training/features/zeroth_order.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/memory/memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

using test::metric;
using test::refused;

// GPUs of one node, each on a PCIe link of a rate, with weights in DRAM where `away`.
Scenario job(const std::string& plan, int gpus = 1, bool away = true, const std::string& link = "1 TB/s") {
    return test::scenario(
        fmt::format("orrery: 1\nkind: training\n"
                    "cluster: {{nodes: 1, node: {{preset: dgx-a100-80g, gpus: {}, pcie_bandwidth: {}, host: {{tiers: "
                    "[{{name: dram, "
                    "medium: dram, capacity: 4 TB, read: 100 TB/s}}]}}}}}}\n"
                    "model: {{layers: 16, hidden: 2048, heads: 16, vocabulary: 1000, sequence: 1024}}\n"
                    "plan: {{{}, fusion: eager{}}}\n",
                    gpus, link, plan, away ? ", offload: {parameters: {tier: dram}}" : ""));
}

double seconds(const Scenario& scenario) {
    return metric(scenario, "iteration_time_s");
}
double weights(const Scenario& s) {
    const auto& training = s.as<TrainingKind>();
    return weights_of(training.model, training.plan, mix_of(training.model, 0, training.model.layers),
                      training.model.tied_embeddings ? 1 : 2)
        .total();
}

}  // namespace

TEST_CASE("a zeroth-order step fetches each weight once and writes it back beside that") {
    const Scenario slow = job("micro_batch: 1, global_batch: 1, zeroth_order: {}", 1, true, "1 GB/s");
    const double here = seconds(job("micro_batch: 1, global_batch: 1, zeroth_order: {}", 1, false));
    const double copies = 2 * weights(slow) / 1e9;
    const double step = seconds(slow);
    CHECK(step >= copies);
    // A layer's way back, and the passes of the last layers, come after the last fetch.
    CHECK(step < copies * (1 + 2.0 / 16) + here);
    CHECK(seconds(job("micro_batch: 1, global_batch: 1, zeroth_order: {}")) < 1.1 * here);
}

TEST_CASE("ranks that share the weights fetch their shares alone, those that do not fetch all") {
    const auto with = [](int zero) {
        return seconds(job(
            fmt::format("data: 2, zero: {}, micro_batch: 1, global_batch: 1, zeroth_order: {{perturbation: 2}}", zero),
            2, true, "1 GB/s"));
    };
    CHECK(with(0) / with(3) == doctest::Approx(2).epsilon(0.1));
}

TEST_CASE("a zeroth-order rank holds weights and the layer in work, and no gradients and states") {
    constexpr double kGib = 1024.0 * 1024 * 1024;
    const Scenario here = job("micro_batch: 1, global_batch: 1, zeroth_order: {}", 1, false);
    const MemoryUse use =
        memory_by_stage(here.as<TrainingKind>().model, here.as<TrainingKind>().plan, here.as<TrainingKind>().software)
            .front();
    CHECK(use.gradients == 0);
    CHECK(use.optimizer == 0);
    CHECK(use.weights == doctest::Approx(2 * weights(here)));
    const Scenario away = job("micro_batch: 1, global_batch: 1, zeroth_order: {}");
    CHECK(metric(away, "tier_gib.dram") == doctest::Approx(2 * weights(here) / kGib));
    CHECK(metric(away, "memory_per_gpu_gib") < metric(here, "memory_per_gpu_gib"));
}

TEST_CASE("passes divided over two ranks take half the products and one perturbation less") {
    const Scenario both = job("data: 2, micro_batch: 1, global_batch: 2, zeroth_order: {}", 2, false);
    const Scenario one = job("data: 2, micro_batch: 1, global_batch: 1, zeroth_order: {perturbation: 2}", 2, false);
    const auto& training = one.as<TrainingKind>();
    // The same work a step of half the batch on each rank: hfu x time counts the products of a rank.
    const auto work = [](const Scenario& s) { return metric(s, "hfu") * seconds(s); };
    CHECK(work(both) / work(one) == doctest::Approx(2).epsilon(1e-9));
    const DirectionKernels perturbation = direction_kernels(training.plan, false);
    CHECK(both.as<TrainingKind>().plan.feature<ZerothOrderPlan>().perturbations() == 3);
    CHECK(training.plan.feature<ZerothOrderPlan>().perturbations() == 2);
    CHECK(perturbation.bytes == 16);
    CHECK(direction_kernels(training.plan, true).bytes == 26);
    // Fused, both read and write each weight.
    PlanSpec fused = training.plan;
    fused.fusion = Fusion::fused;
    CHECK(direction_kernels(fused, true).bytes == 4);
}

TEST_CASE("a zeroth-order step counts the operations of two forward passes") {
    const Scenario s = job("micro_batch: 1, global_batch: 1, zeroth_order: {}", 1, false);
    const double tokens = static_cast<double>(s.as<TrainingKind>().model.sequence);
    const double rate = metric(s, "tflops_per_gpu") * 1e12 * seconds(s);
    CHECK(rate == doctest::Approx(tokens * s.as<TrainingKind>().model.flops_per_token() * 2 / 3));
}

TEST_CASE("what zeroth-order steps do not have is refused") {
    const auto says = [](const std::string& plan, const char* text, int gpus = 1) {
        CAPTURE(plan);
        const std::string error = refused(job(plan + ", zeroth_order: {perturbation: 1}", gpus));
        CAPTURE(error);
        CHECK(error.find(text) != std::string::npos);
    };
    says("micro_batch: 1, global_batch: 4", "has one micro-batch a step");
    says("micro_batch: 1, global_batch: 1, recompute: full", "no backward pass to recompute for");
    says("micro_batch: 1, global_batch: 1, gradient_precision: fp32", "no gradient_precision");
    says("data: 2, zero: 1, micro_batch: 1, global_batch: 2", "zero: 3 shares the weights", 2);
    says("pipeline: 2, micro_batch: 1, global_batch: 1", "zeroth_order cannot be combined with pipeline above 1", 2);
    Scenario odd = job("micro_batch: 1, global_batch: 1, zeroth_order: {perturbation: 2}");
    CHECK(refused(odd).find("needs it to divide data 1") != std::string::npos);
}

TEST_CASE(
    "directions of their own cost an update of each on every rank, and a number of as many bits as the plan says") {
    const std::string plan = "data: 4, micro_batch: 1, global_batch: 4, zeroth_order: {";
    const Scenario shared = job(plan + "}", 4, false);
    const Scenario own = job(plan + "directions: own, bits: 8}", 4, false);
    CHECK(metric(shared, "gradient_bytes") == 4);
    CHECK(metric(own, "gradient_bytes") == 1);
    // Three updates more of 26 B a weight, by six kernels a matrix, which the host launches one by one.
    const auto update = [](const Scenario& scenario) {
        double seconds = 0;
        for (const auto& [name, part] : run_scenario(scenario, test::model_cache(), {}).summary.breakdown) {
            seconds += name == "optimizer" ? part : 0;
        }
        return seconds;
    };
    const double added = update(own) - update(shared);
    CHECK(seconds(own) - seconds(shared) >= added);
    const double bytes = 3 * direction_kernels(own.as<TrainingKind>().plan, true).bytes * weights(own);
    CHECK(added > bytes / 2039e9);
    CHECK(added < 1.6 * bytes / 2039e9);
    CHECK(refused(job(plan + "bits: 8}", 4, false)).find("bits needs directions: own") != std::string::npos);
}
