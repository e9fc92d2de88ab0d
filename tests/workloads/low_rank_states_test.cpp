// Optimizers that keep the moments of projected gradients: closed forms of what they keep and move, published memory, what is refused.

#include "workloads/training/features/low_rank_states.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/memory/memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>

using namespace orrery;

namespace {

using test::metric;
using test::refused;

constexpr double kGiB = 1024.0 * 1024 * 1024;

Scenario job(const std::string& plan, const std::string& model = "{preset: llama-2-7b, sequence: 256}", int gpus = 1) {
    return test::scenario(
        fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 1, node: {{preset: dgx-a100-80g, gpus: {}}}}}\n"
                    "model: {}\nplan: {{data: {}, attention: flash2, fusion: eager, {}}}\nsoftware: pytorch-fsdp\n",
                    gpus, model, gpus, plan));
}
MemoryUse memory(const Scenario& s) {
    const auto& training = s.as<TrainingKind>();
    return memory_by_stage(training.model, training.plan, training.software).at(0);
}
// Values of a layer of Llama-2-7B: four matrices of attention and three of the feed-forward.
constexpr double h = 4096;
constexpr double ffn = 11008;
constexpr double kTables = 2 * 32000 * h;
constexpr double kNorms = 32 * 4 * h;  // as the model counts them

}  // namespace

TEST_CASE("low-rank states keep two moments of rank x the longer side of each matrix, and whole ones of the rest") {
    for (const double rank : {1.0, 256.0, 1024.0}) {
        const Scenario s =
            job(fmt::format("micro_batch: 1, global_batch: 1, states: 16-bit, low_rank_states: {{rank: {}}}", rank));
        const double rest = s.as<TrainingKind>().model.parameters() - 32 * (4 * h * h + 3 * h * ffn);
        CHECK(rest == doctest::Approx(kTables + kNorms).epsilon(1e-3));
        CHECK(memory(s).optimizer == doctest::Approx(2 * 2 * (32 * rank * (4 * h + 3 * ffn) + rest)).epsilon(1e-12));
    }
    // A rank above the shorter side projects nothing.
    CHECK(memory(job("micro_batch: 1, global_batch: 1, states: 16-bit, low_rank_states: {rank: 4096}")).optimizer ==
          doctest::Approx(memory(job("micro_batch: 1, global_batch: 1, states: 16-bit")).optimizer).epsilon(1e-12));
    // The copy of the weights in 32 bits stays.
    const Scenario mixed = job("micro_batch: 1, global_batch: 1, states: mixed, low_rank_states: {rank: 256}");
    const Scenario narrow = job("micro_batch: 1, global_batch: 1, states: 16-bit, low_rank_states: {rank: 256}");
    CHECK(memory(mixed).optimizer - 2 * memory(narrow).optimizer ==
          doctest::Approx(4 * mixed.as<TrainingKind>().model.parameters()).epsilon(1e-12));
}

TEST_CASE("APOLLO's states of Llama 7B are the 1.6 GB that the project publishes, and Adam's in 8 bits 13 GB") {
    // zhuhanqing.github.io/APOLLO: optimizer memory of LLaMA 7B, tables left out: APOLLO 1.6 G (rank 256, 16 bits), 8-bit Adam 13 G.
    const Scenario s = job("micro_batch: 1, global_batch: 1, states: 16-bit, low_rank_states: {rank: 256}");
    const double rest = 4 * (s.as<TrainingKind>().model.parameters() - 32 * (4 * h * h + 3 * h * ffn));
    CHECK((memory(s).optimizer - rest) / 1e9 == doctest::Approx(1.6).epsilon(0.03));
    const double adam = memory(job("micro_batch: 1, global_batch: 1, states: 16-bit")).optimizer / 2;
    CHECK(adam / 1e9 == doctest::Approx(13).epsilon(0.05));
}

TEST_CASE("APOLLO trains 13B under plain data parallelism in 80 GB, where AdamW does not, and 7B within 12 GB") {
    const std::string large = "{preset: llama-2-13b, sequence: 256}";
    const std::string plan = "micro_batch: 1, global_batch: 8, states: 16-bit, recompute: full";
    CHECK(refused(job(plan, large, 8)).find("out of memory") != std::string::npos);
    CHECK(refused(job(plan + ", low_rank_states: {rank: 256}", large, 8)).empty());
    const Scenario small =
        job("micro_batch: 1, global_batch: 1, states: 16-bit, recompute: full, "
            "low_rank_states: {rank: 1, layerwise: true, weight_bits: 8}");
    CHECK(memory(small).total() < 12e9);
    CHECK(memory(small).weights ==
          doctest::Approx((1 + 4.0 / 256) * small.as<TrainingKind>().model.parameters()).epsilon(1e-12));
    CHECK(memory(small).gradients == doctest::Approx(2 * kTables / 2).epsilon(1e-12));  // the largest: a table
    // Each half of it alone is not enough.
    CHECK(memory(job("micro_batch: 1, global_batch: 1, states: 16-bit, recompute: full, "
                     "low_rank_states: {rank: 1, layerwise: true}"))
              .total() > 12e9);
    CHECK(memory(job("micro_batch: 1, global_batch: 1, states: 16-bit, recompute: full, "
                     "low_rank_states: {rank: 1, weight_bits: 8}"))
              .total() > 12e9);
}

TEST_CASE("an update moves fewer moments and multiplies with the projection; weights in 8 bits are widened") {
    const std::string plan = "micro_batch: 1, global_batch: 1, states: 16-bit";
    const double adam = metric(job(plan), "iteration_time_s");
    const double one = metric(job(plan + ", low_rank_states: {rank: 1}"), "iteration_time_s");
    const double many = metric(job(plan + ", low_rank_states: {rank: 2048}"), "iteration_time_s");
    CHECK(one < adam);
    // The projections of 6.5 billion weights: 2 x rank FLOP each, at no more than the A100's 312 TFLOP/s.
    CHECK(many - one > 2 * 2047 * 6.47e9 / 312e12);
    CHECK(metric(job(plan + ", low_rank_states: {rank: 1, weight_bits: 8}"), "iteration_time_s") > one);
}

TEST_CASE("what low-rank states cannot be is said at once") {
    const std::string text =
        refused(job("micro_batch: 1, global_batch: 2, zero: 1, low_rank_states: {layerwise: true, "
                    "weight_bits: 9}",
                    "llama-2-7b", 2));
    for (const char* part :
         {"needs the types of states", "weight_bits is 8 or 16", "layerwise frees whole gradients"}) {
        CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    }
    CHECK(refused(job("micro_batch: 1, global_batch: 4, states: 16-bit, low_rank_states: {layerwise: true}"))
              .find("one micro-batch a step") != std::string::npos);
    CHECK(refused(job("micro_batch: 1, global_batch: 1, states: 16-bit, low_rank_states: {}, adapters: {rank: 4}"))
              .find("low_rank_states cannot be combined with adapters") != std::string::npos);
}
