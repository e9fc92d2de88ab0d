#include "workloads/training/features/offload.hpp"

#include "workloads/training/plan/memory_use.hpp"
#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::training {

static void describe_place(Fields& fields, const Field& field, OffloadPlace& place) {
    fields.optional(field, place.given, [&](Fields& inner) {
        inner.text({"tier", "tier of node.host.tiers", true}, place.tier);
        inner.number({"fraction", "fraction that is kept there", false, 0, 1}, place.fraction);
        inner.text({"rest", "memory tier of the remaining states (none: the device)"}, place.rest);
    });
}

void OffloadPlan::describe(Fields& fields) {
    describe_place(fields, {"optimizer", "optimizer states in a memory tier, updated by the host"}, optimizer);
    describe_place(fields,
                   {"gradients", "gradients in a memory tier: copied after each micro-batch, summed by the host"},
                   gradients);
    describe_place(fields, {"parameters", "weights, fetched layer by layer"}, parameters);
    describe_place(fields, {"activations", "activations that layers keep for their backward pass"}, activations);
    fields.enumeration({"step",
                        "weight update on the host: after the global gradient norm, during the backward pass, or with "
                        "the previous step's gradients"},
                       {"synchronous", "pipelined", "delayed"}, step);
    fields.integer({"prefetch", "layers fetched ahead of the one that computes", false, 0, 1000}, prefetch);
}

std::vector<OffloadPart> places_of(const OffloadPlan& offload) {
    return {{"optimizer", &offload.optimizer},
            {"gradients", &offload.gradients},
            {"parameters", &offload.parameters},
            {"activations", &offload.activations}};
}

void OffloadPlan::check(const ModelSpec&, const PlanSpec& plan, PlanProblems& out) const {
    bool any = false;
    for (const auto& [what, place] : places_of(*this)) {
        any = any || place->given;
        out.refuse(place->given && place->tier.empty(), fmt::format("offload.{} needs a tier", what));
        out.refuse(!place->rest.empty() && place->rest == place->tier,
                   fmt::format("offload.{}: rest is the tier itself", what));
        out.refuse(!place->rest.empty() && place->fraction >= 1,
                   fmt::format("offload.{}: rest holds nothing, as fraction is 1", what));
    }
    out.refuse(!any, "offload names none of optimizer, gradients, parameters and activations");
    const bool shared = plan.data * plan.context > 1 && plan.sums_gradients();
    out.refuse(shared && plan.zero < 2, "offload on several ranks needs zero: 2 or 3");
    out.refuse(shared && plan.zero < 3 && parameters.away() > 0, "offload.parameters on several ranks needs zero: 3");
    out.refuse(gradients.away() > 0 && !optimizer.given,
               "offload.gradients needs offload.optimizer: the device that updates weights needs their gradients");
    out.refuse(step != OptimizerStep::synchronous && !optimizer.given,
               "offload.step other than synchronous needs offload.optimizer");
    out.refuse(plan.recompute_layers > 0 && activations.away() > 0,
               "recompute_layers with offloaded activations is not modelled");
}

bool OffloadPlan::by_layer(const PlanSpec& plan) const {
    return plan.pipeline == 1;
}

void OffloadPlan::states(const ModelSpec& model, const PlanSpec& plan, const RankWeights&, MemoryUse& use) const {
    const double layer = weights_of(model, plan, LayerMix{1, 0}, 0).total();  // before ZeRO
    const auto ahead = static_cast<double>(prefetch);
    use.weights *= 1 - parameters.away();
    use.gradients *= 1 - gradients.away();
    use.optimizer *= 1 - optimizer.away();
    if (parameters.away() > 0 && plan.zero < 3) {
        // Under ZeRO-3 what is fetched are shares, and gathered layers are counted. What has changed is on its way back.
        use.buffers += 2 * (ahead + (plan.sums_gradients() ? 1 : 2)) * layer;
    }
    if (gradients.away() > 0) {
        use.buffers += 2 * bytes_of(plan.gradient_precision) * layer;
    }
}

void OffloadPlan::keep(const PlanSpec&, KeptActivations& use) const {
    const double away = activations.away();
    if (away > 0) {
        use.kept = std::min(use.kept, (1 - away) * use.kept + away * static_cast<double>(prefetch + 1) * use.layer);
    }
}

extern const FeatureRow kOffload;
const FeatureRow kOffload = {"offload", "states and activations kept in memories of the node",
                             make_feature<OffloadPlan>};

}  // namespace orrery::training
