#pragma once
// The `optimizer_types` section of a plan: Adam's states in fewer bits than 32 (a precision-aware optimizer).
//
// Claims: of a trained weight the optimizer holds both moments and a copy of the weight in the types that are given; an update reads and
// writes as many bytes less. Copies in 32 bits of weights in bf16 may be held as the 16 bits that the weight lacks (`remainders`): the
// update then reads the weight as well.
// Scope: mixed states (16-bit weights). Moments of 8 bits have a scale a tensor, which is not counted; kernels of an update reach the same
// rate in all types.
// Sources: NVIDIA/TransformerEngine, transformer_engine/pytorch/optimizers/fused_adam.py (master_weight_dtype, exp_avg_dtype,
// exp_avg_sq_dtype, store_param_remainders); Megatron-LM, core/optimizer/__init__.py (--use-precision-aware-optimizer passes these, and
// remainders from Transformer Engine 2.1 on).
// Validated by tests/workloads/optimizer_types_test.cpp (closed forms of bytes held and moved).

#include "workloads/training/plan/feature.hpp"

#include <cstdint>

namespace orrery::training {

enum class StateType : std::uint8_t { fp32, bf16, fp16, fp8 };

struct OptimizerTypes final : FeatureOf<OptimizerTypes> {
    StateType master = StateType::fp32, first = StateType::fp32, second = StateType::fp32;
    bool remainders = false;

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    void states(const ModelSpec& model, const PlanSpec& plan, const RankWeights& held, MemoryUse& use) const override;

    /// B of a weight that are held, of the 12 of states in 32 bits; and B that an update moves less.
    [[nodiscard]] double held() const;
    [[nodiscard]] double unmoved() const;
};

}  // namespace orrery::training
