#include "workloads/training/features/outer.hpp"

#include "workloads/training/plan/memory_use.hpp"
#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::training {

void OuterPlan::describe(Fields& fields) {
    fields.integer({"workers", "number of groups that the data-parallel replicas divide into", false, 1, 1'000'000},
                   workers);
    fields.integer({"steps", "inner steps from one exchange of a weight to the next", false, 1, 100'000}, steps);
    fields.integer({"fragments", "parts of the model that are exchanged one after another", false, 1, 10'000},
                   fragments);
    fields.integer({"overlap", "inner steps that go on before an exchange is waited for; 0: none", false, 0, 100'000},
                   overlap);
    fields.integer({"bits", "bits per exchanged weight", false, 1, 32}, bits);
}

void OuterPlan::check(const ModelSpec&, const PlanSpec& plan, PlanProblems& out) const {
    out.refuse(workers < 2, "outer needs workers of at least 2");
    out.refuse(overlap > steps,
               fmt::format("outer.overlap {} is longer than the {} steps to the next exchange", overlap, steps));
    out.refuse(fragments > steps,
               fmt::format("outer.fragments {} are more than the {} steps that they take turns in", fragments, steps));
    out.require(plan.data % std::max<std::int64_t>(1, workers) == 0,
                fmt::format("outer.workers {} must divide data {}", workers, plan.data));
}

// The weights of the last exchange and the outer momentum in 32 bits, shared by a worker's ranks, and a fragment on its way.
void OuterPlan::states(const ModelSpec&, const PlanSpec& plan, const RankWeights& held, MemoryUse& use) const {
    const double share = held.dense / static_cast<double>(plan.alike());
    use.optimizer += 8 * share;
    use.buffers += static_cast<double>(bits) / 8 * share / static_cast<double>(fragments);
}

extern const FeatureRow kOuter;
const FeatureRow kOuter = {"outer",
                           "outer steps (DiLoCo): groups of replicas train alone and exchange weights at intervals",
                           make_feature<OuterPlan>};

}  // namespace orrery::training
