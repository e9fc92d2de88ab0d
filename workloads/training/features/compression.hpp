#pragma once
// The `compression` section of a plan: which gradients are left out of their exchange.

#include "workloads/training/plan/feature.hpp"

namespace orrery::training {

/// Gradients of which the largest alone are exchanged, by a sparse all-gather; the others add up locally.
/// Source: Lin et al., "Deep Gradient Compression", ICLR 2018, arXiv:1712.01887.
struct CompressionPlan final : FeatureOf<CompressionPlan> {
    double density = 0.001;        ///< share of the gradients that is sent
    std::int64_t value_bits = 32;  ///< of one that is sent
    std::int64_t index_bits = 32;  ///< that tell where it belongs
    double dense = 0;              ///< share of the weights whose gradients are exchanged whole: norms and biases
    double sample = 0.01;          ///< share of the gradients that the threshold is estimated from; 1: exact

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    void states(const ModelSpec& model, const PlanSpec& plan, const RankWeights& held, MemoryUse& use) const override;
};

/// Payload of the dense all-reduce and of the sparse all-gather over `ranks`, B, of so many weights of a rank.
struct CompressedBytes {
    double dense = 0;
    double sparse = 0;
};
[[nodiscard]] CompressedBytes compressed_bytes(const PlanSpec& plan, double weights, double ranks);
/// B through memory that choosing what is sent takes, and adding up what came.
[[nodiscard]] double compress_traffic(const PlanSpec& plan, double weights);
[[nodiscard]] double decompress_traffic(const PlanSpec& plan, double weights, double ranks);

}  // namespace orrery::training
