// Channels of products that are trained in place: closed forms of what is trained, held, computed and kept; and what is refused.

#include "workloads/training/features/slices.hpp"
#include "tests/support/few_weights.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/memory/memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test::few_weights;
using test::train;

TEST_CASE("slices train channels of products in place: no products beside them, no gradients of the rest") {
    const std::string plan = kPlan + ", slices: {channels: 64, modules: 'query, output, down'}";
    const Scenario s = scenario_of(plan);
    const auto& training = s.as<TrainingKind>();
    const double trained = 4 * 64 * (h + h + h);  // 64 outputs of query, inputs of output and of down
    CHECK(4 * training.plan.feature<SlicePlan>().trained(training.model) == trained);
    const MemoryUse use = memory_by_stage(training.model, training.plan, training.software)[0];
    // They are part of the frozen weights, and counted once.
    CHECK(use.weights == doctest::Approx(2 * (4 * kLayer + 4 * 4 * h + 2 * kTable)).epsilon(1e-12));
    CHECK(use.optimizer == doctest::Approx(12 * trained).epsilon(1e-12));
    const double tokens = 512;
    const double attention = train(scenario_of(kPlan)).hardware_flops / 8 - 6 * tokens * (4 * kLayer + kTable);
    const TrainingResult out = train(s);
    CHECK(out.hardware_flops / 8 ==
          doctest::Approx(4 * tokens * (4 * kLayer + kTable) + 2 * tokens * trained + attention).epsilon(1e-9));
    const TrainingResult adapters =
        train(scenario_of(kPlan + ", adapters: {rank: 64, modules: 'query, output, down'}"));
    CHECK(out.iteration_s < adapters.iteration_s);
    CHECK(adapters.iteration_s < train(scenario_of(kPlan)).iteration_s);
    // Of down's input the channels alone are kept, of output's all, which attention keeps itself; of query's its norm.
    const auto kept = [&](const std::string& of) {
        const Scenario one = scenario_of(of);
        return memory_by_stage(one.as<TrainingKind>().model, one.as<TrainingKind>().plan,
                               one.as<TrainingKind>().software)[0]
            .activations;
    };
    CHECK(kept(kPlan) - kept(plan) == doctest::Approx(4 * tokens * (2 * h + 2 * ffn - 2 * 64)).epsilon(1e-12));
}

TEST_CASE("slices that a plan or a product has no room for are refused") {
    for (const auto& [plan, said] :
         {std::pair{kPlan + ", slices: {channels: 2000, modules: 'key, output'}",
                    "slices.channels is 2000, and 'key' has 256"},
          {kPlan + ", slices: {channels: 16, modules: outputs}", "did you mean 'output'?"},
          {std::string("tensor: 8, global_batch: 8, slices: {channels: 16}"), "tensor: 1"}}) {
        CHECK_THROWS_WITH(train(scenario_of(plan)), doctest::Contains(said));
    }
}
