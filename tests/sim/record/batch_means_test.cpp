// Warm-up and batch means on series whose mean and memory are known.

#include "sim/record/batch_means.hpp"
#include "sim/base/random.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace orrery;

namespace {

// First-order autoregressive: mean 10, each value remembers `memory` of the one before. It starts at `start`.
std::vector<double> series(std::size_t n, double memory, double start, std::uint64_t seed) {
    RandomStream random(seed, "test/series");
    std::vector<double> out;
    double value = start - 10;
    for (std::size_t i = 0; i < n; ++i) {
        value = memory * value + random.normal();
        out.push_back(10 + value);
    }
    return out;
}

}  // namespace

TEST_CASE("batch means: a ratio of sums by hand") {
    // 3, 5, 4 tokens in 1, 2, 1 s: 3 tokens/s; residuals 0, -1, 1.
    const std::vector<double> tokens = {3, 5, 4};
    const std::vector<double> seconds = {1, 2, 1};
    const BatchEstimate out = ratio_of_batches(tokens, seconds, 0.95);
    CHECK(out.value == 3);
    CHECK(out.half_width == doctest::Approx(4.303 * std::sqrt(2.0 / 2 / 3) / (4.0 / 3)));
    CHECK(out.correlation == doctest::Approx(-0.5));
    CHECK(out.relative() == doctest::Approx(out.half_width / 3));
    CHECK(ratio_of_batches(std::vector<double>{2, 2}, std::vector<double>{1, 1}, 0.9).half_width == 0);
}

TEST_CASE("batch means: groups keep the end of the series") {
    CHECK(grouped(std::vector<double>{9, 1, 2, 3, 4, 5, 6}, 3) == std::vector<double>{3, 7, 11});
}

TEST_CASE("batch means: intervals hold the mean as often as they say, and tell batches that are too short") {
    int inside = 0;
    int suspected = 0;
    constexpr int kCases = 400;
    constexpr std::size_t kBatches = 16;
    const std::vector<double> ones(kBatches, 200);
    for (int i = 0; i < kCases; ++i) {
        const std::vector<double> sums =
            grouped(series(200 * kBatches, 0.8, 10, static_cast<std::uint64_t>(i)), kBatches);
        const BatchEstimate out = ratio_of_batches(sums, ones, 0.9);
        inside += std::fabs(out.value - 10) <= out.half_width ? 1 : 0;
        const std::vector<double> few =
            grouped(series(2 * kBatches, 0.95, 10, static_cast<std::uint64_t>(i)), kBatches);
        suspected += ratio_of_batches(few, std::vector<double>(kBatches, 2), 0.9).independent(kBatches) ? 0 : 1;
    }
    CHECK(inside >= 0.86 * kCases);
    CHECK(inside <= 0.95 * kCases);
    CHECK(suspected > 0.6 * kCases);
}

TEST_CASE("warm-up: a transient is cut off where it ends, and one that lasts is refused") {
    int found = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        // The transient of 50 shrinks to the noise of 1.7 after 15 values; a cut by chance is later.
        const auto cut = warm_up_of(series(400, 0.8, 60, seed));
        found += cut && *cut <= 100 ? 1 : 0;
        CHECK(cut.value_or(400) >= 8);
    }
    CHECK(found >= 15);
    std::vector<double> rising;
    for (int i = 0; i < 100; ++i) {
        rising.push_back(i);
    }
    CHECK(!warm_up_of(rising));
    CHECK(warm_up_of(std::vector<double>(40, 3.0)) == std::optional<std::size_t>(0));
}
