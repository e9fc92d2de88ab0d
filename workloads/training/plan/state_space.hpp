#pragma once
// Plans of hybrids: what state-space layers ask of a plan, and what they keep.
//
// Claims: ranks of a tensor-parallel group share heads and groups, as Megatron-Core's MambaMixer does, with the collectives of
// attention around the layer's two products. The scan works in 16 bits with sums and states in 32, whatever the products' format.
// A layer keeps its first product's output, what the scan made before the gate, and the inputs of the norm after it and of the last
// product; the rest the scan's backward pass computes again (mamba_ssm, MambaSplitConv1dScanCombinedFn).
// Limits: no context parallelism, whose ranks would pass states or exchange heads; no packed documents, adapters, offload or
// zeroth-order steps.

#include "workloads/training/plan/spec.hpp"

namespace orrery::training {

/// What is wrong with a plan for a hybrid or for layers of linear attention; nothing for other models.
[[nodiscard]] PlanProblems state_space_problems(const ModelSpec& model, const PlanSpec& plan);

/// B that a state-space layer keeps for a token on all ranks of a tensor-parallel group, without what is before its norm and after
/// it. `operand`: B of a value before a product, where casts are kept.
[[nodiscard]] double state_space_bytes(const ModelSpec& model, double operand);

/// Of the vector units' 32-bit rate that the kernels of mamba_ssm's scan reach, forward and backward, where the software names no
/// share. Solved on one published run that no validated point is of: Mamba-2 of 1.3 billion parameters on one H200 (48 layers of width
/// 2048, four sequences of 4,096 tokens) at 239 TFLOP/s, counted as 6 FLOPs a weight and token. The same run's 360 TFLOP/s on GB200 say
/// 0.51 too, its 102.5 on A100 0.86.
[[nodiscard]] Sourced<double> usual_scan_efficiency();

}  // namespace orrery::training
