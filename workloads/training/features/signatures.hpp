#pragma once
// A plan written as signatures: how the ranks of a stage hold each tensor, instead of degrees of parallelism.
//
// Claims: the ranks of a stage form a grid, and along each of its dimensions a tensor is split along an axis (S0, S1) or broadcast (B);
// a product whose summed axis is split gives partial sums (P), which an all-reduce makes whole. Axes of activations are samples (0) and
// tokens of a sequence (1); of weights rows (0, summed over) and columns (1). What a dimension's signatures say together is one of:
//   activations S0, weights B                  data parallelism; optimizer S0: ZeRO-1
//   activations S0, weights S0                 data parallelism whose weights are gathered before use: ZeRO-3
//   activations S1, weights B                  context parallelism
//   activations B, weights in S1, out S0       tensor parallelism: the output is P
//   activations S1, weights in S1, out S0      the same with sequence parallelism
// A plan written so becomes the plan that its degrees name, and runs the same collectives. Dimensions that mean the same multiply.
// Limits: one signature for all layers; pipeline stages stay a degree, as placements are in OneFlow; the innermost dimensions are the
// tensor-parallel ones, then context, then data, as ranks lie on the nodes.
// Source: Yuan et al., "OneFlow: Redesign the Distributed Deep Learning Framework from Scratch", arXiv:2110.15032, section 3.1.
// Validated by tests/workloads/signatures_test.cpp: equivalent plans run the same step.

#include "workloads/training/plan/feature.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::training {

enum class Signature { split_0, split_1, broadcast };

/// One dimension of the grid of ranks.
struct GridDimension {
    std::int64_t ranks = 1;
    Signature activations = Signature::broadcast;
    Signature weights_in = Signature::broadcast;
    Signature weights_out = Signature::broadcast;
    Signature optimizer = Signature::broadcast;
};

struct SignaturePlan final : FeatureOf<SignaturePlan> {
    std::vector<GridDimension> grid;  ///< outermost first

    void describe(Fields& fields) override;
    /// Gives the plan the degrees that the signatures name. Degrees that the plan names besides must be the same.
    [[nodiscard]] std::vector<std::string> resolve(PlanSpec& plan) const override;
};
}  // namespace orrery::training
