#pragma once
// The `low_rank_states` section of a plan: optimizers that keep the moments of a projection of each gradient, not of the gradient.
//
// Claims: of each matrix of a layer, n x m with n <= m, the optimizer keeps both moments of a rank x m projection by random numbers
// that are drawn again from a seed: 2 rank m values in place of 2 n m (GaLore keeps the projection beside them, APOLLO does not).
// Tables and norms keep theirs whole. An update multiplies the projection with the gradient, and moves the fewer moments.
// `layerwise`: each parameter is updated, and its gradient freed, when its gradient is final, so that only the largest is whole.
// `weight_bits: 8`: weights are held in 8 bits with a scale and a zero of 16 bits in groups of 256, and widened before each product.
// Limits: no stages of a pipeline; one kind of layer with plain attention and a dense feed-forward; updates of layerwise plans are priced behind the
// backward pass; rounding of 8-bit weights is part of the update's kernel.
// Sources: Zhu et al., "APOLLO: SGD-like Memory, AdamW-level Performance", arXiv:2412.05270, algorithm 1 and table 1;
// zhuhanqing/APOLLO (attention's and the feed-forward's linear layers are projected; groups of 256).
// Validated by tests/workloads/low_rank_states_test.cpp (closed forms, and the optimizer memory that the project publishes).

#include "workloads/training/plan/feature.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace orrery::training {

struct LowRankStates final : FeatureOf<LowRankStates> {
    std::int64_t rank = 256;
    bool layerwise = false;
    std::int64_t weight_bits = 16;

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    void states(const ModelSpec& model, const PlanSpec& plan, const RankWeights& held, MemoryUse& use) const override;

    /// Moments that are kept over those that Adam would keep of the whole model.
    [[nodiscard]] double share(const ModelSpec& model) const;
    /// B of a weight as it is held.
    [[nodiscard]] double weight_bytes() const;
};

/// A matrix of weights, or of their gradients.
struct WeightMatrix {
    double inputs = 0;
    double outputs = 0;
    [[nodiscard]] double values() const { return inputs * outputs; }
    [[nodiscard]] double shorter() const { return std::min(inputs, outputs); }
    [[nodiscard]] double longer() const { return std::max(inputs, outputs); }
};
/// The matrices of a layer, each linear layer by itself.
[[nodiscard]] std::vector<WeightMatrix> layer_matrices(const ModelSpec& model);

}  // namespace orrery::training
