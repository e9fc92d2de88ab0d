#pragma once
// The `slices` section of a plan: some channels of some products are trained in place, and all other weights are frozen (S2FT).
//
// Claims: of each named product `channels` of its inputs (output, down) or outputs (all others) are trained, which a permutation of coupled
// weights makes a dense matrix. They are part of the model's weights: there are no products beside these. The backward pass takes the
// gradients of all inputs and of no weights but the slices', for which it keeps the slices' inputs alone. Gradients, their reduction
// and optimizer states are those of the slices.
// Scope: dense models with plain attention, whole products on each rank.
// Limits: the gradient of the first layer's input is computed though nothing needs it.
// Sources: Yang et al., "S2FT: Efficient, Scalable and Generalizable LLM Fine-tuning by Structured Sparsity", arXiv:2412.06289.
// Validated by tests/workloads/slices_test.cpp (closed forms).

#include "workloads/training/features/adapters.hpp"

namespace orrery::training {

struct SlicePlan final : FeatureOf<SlicePlan> {
    std::int64_t channels = 16;
    std::string modules = "output, down";

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    [[nodiscard]] bool freezes() const override { return true; }
    [[nodiscard]] std::optional<RankWeights> own_weights(const ModelSpec& model, const PlanSpec& plan,
                                                         const LayerMix& layers, double tables) const override;
    [[nodiscard]] std::optional<double> flops_per_token(const ModelSpec& model, const PlanSpec& plan) const override;

    /// Trained weights of a layer.
    [[nodiscard]] double trained(const ModelSpec& model) const;
};

/// Slices of a product of a layer, `inputs` x `outputs` each; none where the plan has none.
[[nodiscard]] std::vector<AdapterShape> slices_of(const ModelSpec& model, const PlanSpec& plan, LayerProduct product);

}  // namespace orrery::training
