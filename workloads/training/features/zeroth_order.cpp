#include "workloads/training/features/zeroth_order.hpp"

#include "workloads/training/features/offload.hpp"
#include "workloads/training/plan/memory_use.hpp"
#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>

namespace orrery::training {

void ZerothOrderPlan::describe(Fields& fields) {
    fields.integer(
        {"perturbation", "data-parallel ranks that the two passes of a micro-batch are divided over", false, 1, 2},
        perturbation);
    fields.enumeration({"directions",
                        "directions of a step: one that all replicas share, or one of each, whose updates every rank "
                        "applies"},
                       {"shared", "own"}, directions);
    fields.integer(
        {"bits", "bits of the number that a replica tells the others; below 32 with directions: own", false, 1, 32},
        bits);
}

void ZerothOrderPlan::check(const ModelSpec&, const PlanSpec& plan, PlanProblems& out) const {
    const auto refuse = [&](bool wrong, const std::string& text) { out.refuse(wrong, "zeroth_order " + text); };
    refuse(plan.zero == 1 || plan.zero == 2,
           fmt::format("has no states and gradients to share: zero: {} means nothing, zero: 3 shares the weights",
                       plan.zero));
    refuse(plan.recompute != Recompute::none, "has no backward pass to recompute for: recompute: none");
    refuse(plan.gradient_precision != Precision::bf16, "exchanges one number and no gradients: no gradient_precision");
    refuse(plan.overlap_tensor == TensorOverlap::backward, "has no backward pass: overlap.tensor: none, full or tiles");
    refuse(plan.overlap_parameters, "has no weights that ZeRO-1 gathers: no overlap.parameters");
    refuse(bits < 32 && directions == Directions::shared,
           "sums the losses of a shared direction in 32 bits: bits needs directions: own");
    const OffloadPlan& offload = plan.feature<OffloadPlan>();
    refuse(offload.optimizer.given || offload.gradients.given || offload.activations.given,
           "has only weights to keep away: offload.parameters");
    const std::int64_t replicas = plan.data / perturbation;
    if (plan.data % perturbation != 0) {
        refuse(true, fmt::format("with perturbation: {} needs it to divide data {}", perturbation, plan.data));
    } else {
        refuse(plan.micro_batch * replicas != plan.global_batch,
               fmt::format("has one micro-batch a step: micro_batch {} x {} replicas is {}, and global_batch is {}",
                           plan.micro_batch, replicas, plan.micro_batch * replicas, plan.global_batch));
    }
}

void ZerothOrderPlan::states(const ModelSpec&, const PlanSpec&, const RankWeights&, MemoryUse& use) const {
    use.gradients = use.optimizer = 0;
}

// The layer in work, and of each pass what goes from one to the next.
void ZerothOrderPlan::keep(const PlanSpec&, KeptActivations& use) const {
    use.working = use.layer;
    use.kept = static_cast<double>(passes()) * use.input;
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

extern const FeatureRow kZerothOrder;
const FeatureRow kZerothOrder = {"zeroth_order",
                                 "steps of two forward passes under perturbed weights, without a backward pass",
                                 make_feature<ZerothOrderPlan>};

}  // namespace orrery::training
