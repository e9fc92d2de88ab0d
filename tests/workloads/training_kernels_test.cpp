// Kernels of attention and experts that a plan chooses: closed forms of what they move, and what they do not go together with.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/features/kernels.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

using namespace orrery;

namespace {

constexpr const char* kModel =
    "{layers: 4, hidden: 1024, heads: 8, ffn: 1024, gated: true, vocabulary: 1024, sequence: 2048, experts: {count: "
    "16, topk: 4, ffn: 512}}";

// One rank with all experts and nothing to exchange; no kernel waits for its host.
TrainingResult train(const std::string& plan, const std::string& model = kModel) {
    Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: {{preset: dgx-h100, gpus: 1, nics: 1}}}}
model: {}
plan: {{global_batch: 2, micro_batch: 2, {}}}
software: {{preset: megatron-core-2024, launch: 0 s, expert_wait: 0 s}}
)",
                                            model, plan));
    RunOptions options;
    options.check_memory = false;
    return *run_scenario(s, test::model_cache(), options).training;
}

double seconds(const std::string& plan) {
    return train(plan).iteration_s;
}

std::string refusal_of(const std::string& plan, const std::string& model = kModel) {
    try {
        (void)train(plan, model);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("training kernels: biases and clamps of experts take their bytes, in each pass") {
    const double plain = seconds("precision: bf16");
    const double biases = seconds("precision: bf16, kernels: {expert_biases: true}") - plain;
    const double clamp = seconds("precision: bf16, kernels: {clamp: true}") - plain;
    CHECK(biases > 0);
    // 28 and 40 bytes a value of 1,024 columns against 16 and 20 of 512, and the starts of 34 and 98 kernels of 16 experts.
    const double ratio = (28 + 40) * 1024.0 / ((16 + 20) * 512.0);
    CHECK(biases / clamp > ratio);
    CHECK(biases / clamp < 2 * ratio);
    CHECK(seconds("precision: bf16, kernels: {expert_biases: true, clamp: true}") - plain ==
          doctest::Approx(biases + clamp).epsilon(1e-6));
    // Each rank of 2 x 2,048 tokens has 4 rows a token in 4 layers; a kernel moves its bytes at the memory's rate at best.
    const double bytes = 4.0 * 2 * 2048 * 4 * 1024 * (28 + 40);
    CHECK(biases > bytes / 3.35e12);
    CHECK(biases < 3 * bytes / 3.35e12);
}

TEST_CASE("training kernels: fused products of experts leave out what is inside them") {
    const double apart = seconds("precision: fp8, fp8_scaling: block");
    const double fused = seconds("precision: fp8, fp8_scaling: block, kernels: {experts: fused}");
    CHECK(fused < apart);
    // Biases and clamps are inside too.
    CHECK(seconds("precision: fp8, fp8_scaling: block, kernels: {experts: fused, expert_biases: true, clamp: true}") ==
          fused);
}

TEST_CASE("training kernels: attention in 8 bits casts what it reads, and is faster on Blackwell") {
    // 3 bytes a value of queries, keys and values forward, of the results backward, in 4 layers of 4,096 tokens; no attention of training
    // in 8 bits was measured on H100, whose kernel of 16 bits reads less memory.
    const double cast = seconds("precision: bf16, kernels: {attention: fp8}") - seconds("precision: bf16");
    const double bytes = 4.0 * 4096 * 1024 * 3 * (3 + 1);
    CHECK(cast > 0);
    CHECK(cast < 2 * bytes / 3.35e12);
    const auto on_gb200 = [](const std::string& kernels) {
        Scenario s = test::scenario(R"(orrery: 1
kind: training
cluster: {nodes: 1, node: {preset: gb200-nvl72, gpus: 1, nics: 1}}
model: {layers: 4, hidden: 4096, heads: 32, ffn: 4096, vocabulary: 1024, sequence: 16384}
plan: {global_batch: 1, micro_batch: 1, precision: bf16)" +
                                    kernels + R"(}
software: {preset: megatron-core-2024, launch: 0 s}
)");
        RunOptions options;
        options.check_memory = false;
        return run_scenario(s, test::model_cache(), options).training->iteration_s;
    };
    CHECK(on_gb200(", kernels: {attention: fp8}") < on_gb200(""));
}

TEST_CASE("training kernels: what does not go together is refused") {
    CHECK(refusal_of("kernels: {attention: fp8}, attention: unfused").find("needs fused attention") !=
          std::string::npos);
    const std::string dense = "{layers: 4, hidden: 1024, heads: 8, vocabulary: 1024, sequence: 1024}";
    CHECK(refusal_of("kernels: {experts: fused}", dense).find("needs a model with experts") != std::string::npos);
    CHECK(refusal_of("kernels: {expert_biases: true}", dense).find("needs a model with experts") != std::string::npos);
    CHECK(refusal_of("kernels: {clamp: true}", dense).find("needs a model with gated experts") != std::string::npos);
}
