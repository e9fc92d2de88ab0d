// Sums over tensor ranks that the tiles of a product start (T3), or that are cut into it: what stays exposed as a closed form, and what
// is refused; casts for scales of rows.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

using test::train;

Scenario scenario_of(const std::string& overlap, int layers = 8, bool sequence_parallel = true) {
    Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-a100-80g}}
model: {{layers: {}, hidden: 8192, heads: 64, vocabulary: 32000, sequence: 4096}}
plan: {{tensor: 8, micro_batch: 4, global_batch: 8, sequence_parallel: {}, overlap: {{{}}}}}
software: {{preset: megatron-core-2024, launch: 0 us}}
network: {{collectives: ideal}}
)",
                                            layers, sequence_parallel, overlap));
    s.cluster.node.intra_latency.value = 0;
    return s;
}

// Tensor-parallel communication that layers expose, without what the ends of the model have.
double exposed(const std::string& overlap, bool sequence_parallel) {
    const auto of = [&](int layers) {
        const TrainingResult r = train(scenario_of(overlap, layers, sequence_parallel));
        return r.booked[static_cast<std::size_t>(Category::tensor_communication)];
    };
    return of(16) - of(8);
}

}  // namespace

TEST_CASE("tiles of long products hide all of a sum but the share of its last rank") {
    // Per layer: two gathers forward and four backward, two sums in each direction, all of one length.
    CHECK(exposed("tensor: tiles", true) / exposed("tensor: none", true) == doctest::Approx((6 + 4.0 / 8) / 10));
    // Without sequence parallelism a sum is also gathered, behind nothing.
    CHECK(exposed("tensor: tiles", false) / exposed("tensor: none", false) == doctest::Approx((4 + 4.0 / 8) / 8));
}

TEST_CASE("sums that tiles start take no compute units, and near memory fewer bytes") {
    const double in_turn = train(scenario_of("")).iteration_s;
    const double tiles = train(scenario_of("tensor: tiles")).iteration_s;
    CHECK(tiles < in_turn);
    // Narrow memory, which products and sums share.
    const auto seconds = [](const char* overlap) {
        Scenario s = scenario_of(overlap);
        s.cluster.node.gpu.memory_bandwidth.value /= 2;
        return train(s).iteration_s;
    };
    CHECK(seconds("tensor: tiles, near_memory: true") < seconds("tensor: tiles"));
    CHECK(seconds("tensor: tiles") < seconds(""));
}

TEST_CASE("a compiler that only cuts hides neither sums of several gradients nor inputs gathered again") {
    const auto of = [](bool cuts_only, int layers) {
        Scenario s = scenario_of("tensor: full", layers);
        s.as<TrainingKind>().software.cuts_only = cuts_only;
        return train(s).booked[static_cast<std::size_t>(Category::tensor_communication)];
    };
    // Of ten collectives two gathers of the input and two sums of its gradient wait; of the other six one of eight pieces each.
    const double all = exposed("tensor: none", true);
    CHECK((of(true, 16) - of(true, 8)) / all == doctest::Approx((4 + 6.0 / 8) / 10));
    CHECK((of(false, 16) - of(false, 8)) / all == doctest::Approx(6.0 / 8 / 10));
}

TEST_CASE("gathers before products with scales of rows stay whole where the compiler does not cut them") {
    const auto of = [](bool whole, Fp8Scaling scaling, int layers) {
        Scenario s = scenario_of("tensor: full", layers);
        s.as<TrainingKind>().plan.precision = Precision::fp8;
        s.as<TrainingKind>().plan.fp8_scaling = scaling;
        s.cluster.node.gpu.flops_fp8 = s.cluster.node.gpu.flops_bf16;
        s.as<TrainingKind>().software.fused_casts = false;  // so that gathers are of 16 bits
        s.as<TrainingKind>().software.cuts_only = true;
        s.as<TrainingKind>().software.whole_row_gathers = whole;
        return train(s).booked[static_cast<std::size_t>(Category::tensor_communication)];
    };
    const auto waits = [&](bool whole, Fp8Scaling scaling) { return of(whole, scaling, 16) - of(whole, scaling, 8); };
    const double all = exposed("tensor: none", true);
    CHECK(waits(false, Fp8Scaling::row) / all == doctest::Approx((4 + 6.0 / 8) / 10));
    CHECK(waits(true, Fp8Scaling::row) / all == doctest::Approx((8 + 2.0 / 8) / 10));
    CHECK(waits(true, Fp8Scaling::current) / all == doctest::Approx((4 + 6.0 / 8) / 10));
}

TEST_CASE("a sequence that is not the outermost dimension is copied beside each whole collective") {
    const auto copies = [](const char* overlap, Category category, bool sequence_parallel) {
        const auto of = [&](bool copied, int layers) {
            Scenario s = scenario_of(overlap, layers, sequence_parallel);
            s.as<TrainingKind>().software.copies_sequences = copied;
            s.as<TrainingKind>().software.cuts_only = true;
            return train(s).booked[static_cast<std::size_t>(category)];
        };
        return (of(true, 16) - of(true, 8)) - (of(false, 16) - of(false, 8));
    };
    // Per layer and micro-batch: two gathers and two sums forward, four gathers and two sums backward.
    const double forward = copies("tensor: none", Category::forward, true);
    const double read_and_written = 2 * 4.0 * 4096 * 8192 * 2;  // bytes of a copy
    const Scenario s = scenario_of("tensor: none", 8, true);
    const DeviceSpec& gpu = s.cluster.node.gpu;
    const double second =
        gpu.memory_bandwidth.value * gpu.memory_efficiency.value / s.as<TrainingKind>().software.kernel_slowdown.value;
    CHECK(forward == doctest::Approx(8 * 2 * 4 * read_and_written / second).epsilon(0.03));
    CHECK(copies("tensor: none", Category::backward, true) == doctest::Approx(1.5 * forward));
    // What is cut needs none: inputs gathered again and sums of gradients are not.
    CHECK(std::abs(copies("tensor: full", Category::forward, true)) < 1e-12);
    CHECK(copies("tensor: full", Category::backward, true) == doctest::Approx(forward));
    CHECK(std::abs(copies("tensor: none", Category::forward, false)) < 1e-12);
}

TEST_CASE(
    "casts for scales of rows take longer where they reduce over columns, and what promoted products make is scaled") {
    const auto seconds = [](double rate, bool rescales) {
        Scenario s = scenario_of("");
        s.as<TrainingKind>().plan.precision = Precision::fp8;
        s.as<TrainingKind>().plan.fp8_scaling = Fp8Scaling::row;
        s.cluster.node.gpu.flops_fp8 = s.cluster.node.gpu.flops_bf16;
        s.as<TrainingKind>().software.column_casts.value = rate;
        s.as<TrainingKind>().software.rescales_products = rescales;
        return train(s).iteration_s;
    };
    // What rates below one add goes with their inverse.
    const double once = seconds(0.5, false) - seconds(0, false);
    CHECK(once > 0);
    CHECK(seconds(0.25, false) - seconds(0, false) == doctest::Approx(3 * once));
    CHECK(seconds(1, false) == doctest::Approx(seconds(0, false)));
    CHECK(seconds(0, true) > seconds(0, false));
}

TEST_CASE("one rank has nothing to sum, and sums in memory need tiles") {
    const auto alone = [](const char* overlap) {
        Scenario s = scenario_of(overlap);
        s.as<TrainingKind>().plan.tensor = 1;
        s.as<TrainingKind>().plan.data = 8;
        s.as<TrainingKind>().plan.micro_batch = 1;
        return train(s).iteration_s;
    };
    CHECK(alone("tensor: tiles") == alone(""));
    for (const char* overlap : {"near_memory: true", "tensor: full, near_memory: true"}) {
        CAPTURE(overlap);
        const std::string problems = test::problems_when([&] { (void)train(scenario_of(overlap)); });
        CHECK(problems.find("overlap.near_memory needs overlap.tensor: tiles") != std::string::npos);
    }
}
