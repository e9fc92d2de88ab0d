#pragma once
// The `kernels` section of a training plan: kernels that a recipe chooses beside the precision of its products.
//
// Claims:
//   attention: fp8        fused attention reads queries, keys and values in 8 bits. They are cast before it, its results' gradient before
//                         the backward pass; what it writes stays in 16 bits.
//   experts: fused        each product of a rank's experts is one kernel over all their rows, of as many tiles as theirs together. It
//                         applies the activation function (backward: its gradient) and writes the next product's operands in the precision of
//                         products, so that neither that function nor those casts are kernels.
//   expert_biases         a bias before the activation function, in the product; one after the last product, weighed as its token, expert by
//                         expert in 32 bits: 28 bytes a value forward, 40 backward. None with experts: fused, which adds them.
//   clamp                 gate and value are clamped apart and joined before the activation function: 16 bytes per value of the gate forward, 20
//                         backward. None with experts: fused.
// Limits: what a backward pass keeps of fp8 attention is counted as in 16 bits; expert_biases are not counted among the weights.
// Sources: NVIDIA Transformer Engine, DotProductAttention with fp8_dpa (documentation, "FP8 attention") and ops.GroupedLinear with
// ScaledSwiGLU; Megatron-Core, transformer/moe/experts.py, TEGroupedMLP._apply_bias (per expert t + b * p with p in 32 bits, joined, and cast;
// the bytes are counted in it and in what autograd runs for it), and fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl (clamps).
// Validated by tests/workloads/training_kernels_test.cpp (closed forms) and `orrery validate training`.

#include "workloads/training/plan/feature.hpp"

#include <cstdint>

namespace orrery::training {

struct KernelPlan final : FeatureOf<KernelPlan> {
    enum class AttentionOperands : std::uint8_t { bf16, fp8 };
    enum class ExpertProducts : std::uint8_t { apart, fused };

    AttentionOperands attention = AttentionOperands::bf16;
    ExpertProducts experts = ExpertProducts::apart;
    bool expert_biases = false;
    bool clamp = false;

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    [[nodiscard]] bool narrow_attention() const { return attention == AttentionOperands::fp8; }
    [[nodiscard]] bool fused_experts() const { return experts == ExpertProducts::fused; }
    /// Bytes that kernels of their own move, for a value of what the last product of experts makes, and of what the first makes of the gate.
    [[nodiscard]] double bias_bytes(bool backward) const;
    [[nodiscard]] double clamp_bytes(bool backward) const;
};

}  // namespace orrery::training
