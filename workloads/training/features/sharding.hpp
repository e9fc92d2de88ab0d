#pragma once
// The `sharding` section of a plan: who shares weights, gradients and optimizer states under ZeRO-3, and in how many bits they travel.

#include "workloads/training/plan/feature.hpp"

namespace orrery::training {

/// Partitions of ZeRO-3, each over neighbours among the ranks that hold the same weights.
/// Sources: Rajbhandari et al., "ZeRO", SC20; Wang et al., "ZeRO++", arXiv:2306.10209, sections 3.1 to 3.3 (quantised weights,
/// secondary partition, quantised gradients by all-to-all); Xu et al., arXiv:2501.04266 (three levels).
struct ShardingPlan final : FeatureOf<ShardingPlan> {
    std::int64_t weights = 0;    ///< ranks that share the 16-bit weights; 0: all
    std::int64_t gradients = 0;  ///< ranks that share the gradients; 0: all
    std::int64_t optimizer = 0;  ///< ranks that share the optimizer states; 0: all
    std::int64_t secondary =
        0;  ///< ranks that share a second copy of the weights, for backward passes; 0: there is none
    std::int64_t weight_bits = 0;    ///< of a gathered weight on the wire; 0: 16, as they are
    std::int64_t gradient_bits = 0;  ///< of a gradient on the wire; 0: as gradient_precision
    std::int64_t block = 2048;       ///< quantised values that share one 32-bit scale
    std::int64_t prefetch = 0;       ///< units gathered ahead of the one that computes; 0: two

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    void share(const PlanSpec& plan, ShardDegrees& out) const override;
};

/// Bytes on the wire of a gathered weight and of a reduced gradient, with their part of a scale.
[[nodiscard]] double weight_wire_bytes(const PlanSpec& plan);
[[nodiscard]] double gradient_wire_bytes(const PlanSpec& plan);
/// Layers whose gathered weights a rank has room for.
[[nodiscard]] double gathered_layers(const PlanSpec& plan);

}  // namespace orrery::training
