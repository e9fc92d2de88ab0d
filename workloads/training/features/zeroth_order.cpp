#include "workloads/training/features/zeroth_order.hpp"

#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>

namespace orrery::training {

void describe(Fields& fields, ZerothOrderPlan& plan) {
    fields.integer(
        {"perturbation", "data-parallel ranks that the two passes of a micro-batch are divided over", false, 1, 2},
        plan.perturbation);
}

std::vector<std::string> zeroth_order_problems(const PlanSpec& plan, bool has_experts) {
    std::vector<std::string> out;
    if (!plan.zeroth_order.given) {
        return out;
    }
    const auto refuse = [&](bool wrong, const std::string& text) {
        if (wrong) {
            out.push_back("zeroth_order " + text);
        }
    };
    refuse(plan.pipeline > 1, "with pipeline above 1 is not simulated: use tensor and data");
    refuse(has_experts, "of a model with experts is not simulated");
    refuse(plan.sharding.given || plan.outer.given || plan.compression.given,
           "with sharding, outer or compression is not modelled");
    refuse(plan.zero == 1 || plan.zero == 2,
           fmt::format("has no states and gradients to share: zero: {} means nothing, zero: 3 shares the weights",
                       plan.zero));
    refuse(plan.recompute != Recompute::none, "has no backward pass to recompute for: recompute: none");
    refuse(plan.gradient_precision != Precision::bf16, "exchanges one number and no gradients: no gradient_precision");
    refuse(plan.overlap_tensor == TensorOverlap::backward, "has no backward pass: overlap.tensor: none, full or tiles");
    refuse(plan.overlap_parameters, "has no weights that ZeRO-1 gathers: no overlap.parameters");
    const OffloadPlan& offload = plan.offload;
    refuse(offload.optimizer.given || offload.gradients.given || offload.activations.given,
           "has only weights to keep away: offload.parameters");
    const std::int64_t replicas = plan.data / plan.zeroth_order.perturbation;
    if (plan.data % plan.zeroth_order.perturbation != 0) {
        refuse(true, fmt::format("with perturbation: {} needs it to divide data {}", plan.zeroth_order.perturbation,
                                 plan.data));
    } else {
        refuse(plan.micro_batch * replicas != plan.global_batch,
               fmt::format("has one micro-batch a step: micro_batch {} x {} replicas is {}, and global_batch is {}",
                           plan.micro_batch, replicas, plan.micro_batch * replicas, plan.global_batch));
    }
    return out;
}

// In 16 bits, as the source's expressions run without fusion: the numbers are written (2 B); each product with a scalar reads and
// writes (4); each sum of two tensors reads both and writes (6). A perturbation is p += scale * z * eps, an update
// p -= lr * (g * z + decay * p). Fused, a kernel draws the numbers, reads the weight and writes it.
DirectionKernels direction_kernels(const PlanSpec& plan, bool update) {
    if (plan.fusion == Fusion::fused) {
        return {4, 1};
    }
    return update ? DirectionKernels{2 + 4 + 4 + 6 + 4 + 6, 6} : DirectionKernels{2 + 4 + 4 + 6, 4};
}

}  // namespace orrery::training
