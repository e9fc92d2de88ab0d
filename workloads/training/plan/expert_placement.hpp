#pragma once
// The `expert_placement` section of a plan: which rank of an expert group has which experts.
//
// Claims: all ranks have equally many experts, and all wait for the rank whose experts are chosen most often. in-order: as the model
// numbers them. balanced: by falling load, each to the rank with the least load that has a place left, and then pairs of experts of two
// ranks change places as long as that makes the larger of their loads smaller.
// Limits: loads are those of a layer, the same in all layers; where a token's experts of the next layer lie does not matter.
// Sources: Go and Mahajan, "MoETuner: Optimized Mixture of Expert Serving with Balanced Expert Placement and Token Routing",
// arXiv:2502.06643 (an integer program with the same aim, beside that of short ways between layers).
// Validated by tests/workloads/expert_placement_test.cpp (closed forms, and all placements of small cases).

#include "workloads/training/plan/feature.hpp"

#include <vector>

namespace orrery::training {

enum class PlacementPolicy { in_order, balanced };

struct ExpertPlacement final : FeatureOf<ExpertPlacement> {
    PlacementPolicy policy = PlacementPolicy::balanced;

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;

    /// The rank of each expert. Precondition: `ranks` divides the number of experts.
    [[nodiscard]] std::vector<std::size_t> place(const std::vector<double>& loads, std::size_t ranks) const;
};

}  // namespace orrery::training
