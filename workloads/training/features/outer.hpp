#pragma once
// The `outer` section of a plan. What its exchanges take is in simulation/outer_rounds.hpp.

#include "workloads/training/plan/feature.hpp"

namespace orrery::training {

/// Local steps of islands of replicas, which meet every so many steps.
/// Sources: Stich, "Local SGD", ICLR 2019; Sun et al., "CO2", ICLR 2024 (one round late); Douillard et al., "Streaming DiLoCo",
/// arXiv:2501.18512 (fragments, overlap, bits).
struct OuterPlan final : FeatureOf<OuterPlan> {
    std::int64_t workers = 1;    ///< islands that the replicas divide into, neighbours each
    std::int64_t steps = 1;      ///< inner steps from one exchange of a weight to the next
    std::int64_t fragments = 1;  ///< parts of the model that are exchanged one after another
    std::int64_t overlap = 0;    ///< inner steps after which an exchange is waited for
    std::int64_t bits = 32;      ///< of an exchanged weight

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    [[nodiscard]] std::int64_t islands() const override { return workers; }
    [[nodiscard]] bool overlaps() const override { return overlap > 0; }
    void states(const ModelSpec& model, const PlanSpec& plan, const RankWeights& held, MemoryUse& use) const override;
};

}  // namespace orrery::training
