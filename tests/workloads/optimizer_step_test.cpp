// What the optimizer's kernels and sweeps over the gradients move, against their counts.

#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

/// Time of the optimizer's kernels where each moves so many bytes per updated weight and gradients are swept so often.
double step(const char* plan, double bytes, double sweeps) {
    const Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 4, hidden: 1024, heads: 8, vocabulary: 32000, sequence: 512}}
plan: {{data: 8, micro_batch: 1, global_batch: 8, {}}}
software: {{preset: megatron-core-2024, update_bytes: {}, gradient_sweeps: {}}}
)",
                                                  plan, bytes, sweeps));
    return run_scenario(s, test::model_cache(), {}).training->booked[static_cast<std::size_t>(Category::optimizer)];
}

}  // namespace

TEST_CASE("a step takes the bytes of its own weights, and of all gradients for each sweep over them") {
    const auto near = [](double seconds) { return doctest::Approx(seconds).epsilon(1e-6).scale(0); };
    for (const char* replicas : {"zero: 0", "zero: 1"}) {
        CAPTURE(replicas);
        const bool cut = std::string_view(replicas) == "zero: 1";
        const std::string wide = fmt::format("{}, gradient_precision: fp32", replicas);
        const double base = step(wide.c_str(), 40, 0);
        const double forty = step(wide.c_str(), 80, 0) - base;
        CHECK(forty > 0);
        CHECK(step(wide.c_str(), 40, 10) - base == near((cut ? 8 : 1) * forty));
        // Where nothing is counted it is 42 bytes. Gradients of 16 bits are half as much to sweep, and 6 bytes more where they are
        // counted.
        CHECK(step(wide.c_str(), 42, 0) == near(step(wide.c_str(), 0, 0)));
        const std::string narrow = fmt::format("{}, gradient_precision: bf16", replicas);
        CHECK(step(narrow.c_str(), 36, 0) == near(step(narrow.c_str(), 0, 0)));
        CHECK(step(narrow.c_str(), 34, 20) == near(step(wide.c_str(), 40, 10)));
    }
}
