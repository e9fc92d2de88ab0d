#include "workloads/training/features/kernels.hpp"

#include "workloads/training/plan/spec.hpp"

namespace orrery::training {

void KernelPlan::describe(Fields& fields) {
    fields.enumeration({"attention", "operands of fused attention: of 16 bits, or queries, keys and values cast to 8"},
                       {"bf16", "fp8"}, attention);
    fields.enumeration({"experts",
                        "products of experts: one kernel per expert, or a grouped kernel per rank that includes the "
                        "activation and the casts of its output"},
                       {"apart", "fused"}, experts);
    fields.boolean({"expert_biases", "add biases to experts; experts: apart adds those of the last product in 32 bits"},
                   expert_biases);
    fields.boolean({"clamp", "gate and value of experts are clamped before the activation function"}, clamp);
}

void KernelPlan::check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const {
    const bool has_experts = model.experts.count > 0;
    out.refuse(narrow_attention() && plan.attention == AttentionKernel::unfused,
               "kernels.attention: fp8 needs fused attention (attention: flash)");
    out.refuse(fused_experts() && !has_experts, "kernels.experts: fused needs a model with experts");
    out.refuse(fused_experts() && plan.experts.pieces > 1,
               "kernels.experts: fused computes all rows at once: set pieces to 1");
    out.refuse(expert_biases && !has_experts, "kernels.expert_biases needs a model with experts");
    out.refuse(clamp && (!has_experts || !model.gated), "kernels.clamp needs a model with gated experts");
}

double KernelPlan::bias_bytes(bool backward) const {
    // Forward: bias times weight 4, the sum 2 + 4 + 4, joined 4 + 4, cast 4 + 2. Backward: cast 2 + 4, the product's gradient 4 + 2, joined 2 + 2,
    // and two products with their sums, of the bias and of the weight, 4 + 4 + 4 each.
    constexpr double kForward = 28;
    constexpr double kBackward = 40;
    return !expert_biases || fused_experts() ? 0 : backward ? kBackward : kForward;
}

double KernelPlan::clamp_bytes(bool backward) const {
    // Forward: two halves read and written, and joined. Backward: each half's gradient under its mask 2 + 2 + 2, and joined.
    constexpr double kForward = 2 * (2 + 2) + 2 * (2 + 2);
    constexpr double kBackward = 2 * (2 + 2 + 2) + 2 * (2 + 2);
    return !clamp || fused_experts() ? 0 : backward ? kBackward : kForward;
}

extern const FeatureRow kKernels;
const FeatureRow kKernels = {"kernels", "kernels of attention and of experts", &make_feature<KernelPlan>};

}  // namespace orrery::training
