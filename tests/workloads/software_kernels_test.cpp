// Kernels that a software's keys choose, against the bytes that they count: the loss, norms without fusion, sums of gradients.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/memory/memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

using namespace orrery;

namespace {

constexpr double kTokens = 4 * 4096;
constexpr double kVocabulary = 64000;

Scenario job(const std::string& plan, const std::string& software) {
    return test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 4, hidden: 2048, heads: 16, vocabulary: 64000, sequence: 4096}}
plan: {{tensor: 1, data: 8, micro_batch: 4, global_batch: 64, {}}}
software: {{preset: megatron-core-2024, kernel_slowdown: 1, {}}}
)",
                                      plan, software));
}

/// Seconds of all passes, with nothing that waits for the host.
double busy(const std::string& plan, const std::string& software = "launch: 0 us") {
    const TrainingResult result = *run_scenario(job(plan, software), test::model_cache(), {}).training;
    return result.booked[static_cast<std::size_t>(Category::forward)] +
           result.booked[static_cast<std::size_t>(Category::backward)];
}

MemoryUse held(const std::string& plan, const std::string& software = "launch: 0 us") {
    const Scenario s = job(plan, software);
    return memory_of(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software, LayerMix{4},
                     true, true, 1);
}

}  // namespace

TEST_CASE("the loss takes and holds the bytes per logit of its kernels") {
    const double compiled = busy("loss: compiled");
    const double fused = busy("loss: fused");
    CHECK(compiled > fused);
    // 52 bytes per logit one step after the other, 28 compiled, 10 fused, 9.7 in one kernel for each pass.
    const double a_byte = (compiled - fused) / 18;
    CHECK(busy("loss: separate") - compiled == doctest::Approx(24 * a_byte).epsilon(0.01));
    CHECK(fused - busy("loss: online") == doctest::Approx(0.3 * a_byte).epsilon(0.2));

    const double least = held("loss: fused").activations;
    CHECK(held("loss: online").activations - least == doctest::Approx(2 * kTokens * kVocabulary));
    CHECK(held("loss: compiled").activations - least == doctest::Approx(4 * kTokens * kVocabulary));
    CHECK(held("loss: separate").activations - least == doctest::Approx(8 * kTokens * kVocabulary));
}

TEST_CASE("norms are one kernel each where the software fuses them, without fusion too") {
    const std::string split = "launch: 0 us, fused_norms: false";
    const std::string whole = "launch: 0 us, fused_norms: true";
    CHECK(busy("fusion: eager", whole) < busy("fusion: eager", split));
    CHECK(busy("fusion: fused", whole) == busy("fusion: fused", split));
    // What else is eager stays so.
    CHECK(busy("fusion: eager", whole) > busy("fusion: fused", whole));
}

TEST_CASE(
    "gradients that stay beside their sums in 32 bits move 26 bytes a weight and micro-batch, not 10, and hold 2 "
    "more") {
    const auto seconds = [](const char* precision, bool keeps) {
        return busy(fmt::format("gradient_precision: {}", precision),
                    fmt::format("launch: 0 us, fused_gradient_accumulation: false, keeps_gradients: {}", keeps));
    };
    const double narrow = seconds("bf16", false);
    const double wide = seconds("fp32", false);
    const double kept = seconds("fp32", true);
    CHECK(wide > narrow);
    CHECK(kept - wide == doctest::Approx(4 * (wide - narrow)).epsilon(0.01));  // 16 bytes, and 4
    CHECK(seconds("bf16", true) == narrow);

    const auto gradients = [](bool keeps, bool fused) {
        return held("gradient_precision: fp32",
                    fmt::format("launch: 0 us, keeps_gradients: {}, fused_gradient_accumulation: {}", keeps, fused))
            .gradients;
    };
    CHECK(gradients(true, false) == doctest::Approx(gradients(false, false) * 6 / 4));
    CHECK(gradients(true, true) == gradients(false, true));
}
