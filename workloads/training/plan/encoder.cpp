#include "workloads/training/plan/encoder.hpp"

#include <fmt/format.h>

#include <utility>

namespace orrery::training {

PlanProblems encoder_problems(const ModelSpec& model, const PlanSpec& plan) {
    PlanProblems out;
    const EncoderSpec& encoder = model.encoder;
    if (!encoder.given()) {
        return out;
    }
    const bool scores = plan.recompute == Recompute::selective && plan.attention == AttentionKernel::unfused;
    const bool again = scores || plan.recompute == Recompute::half || plan.recompute == Recompute::full ||
                       plan.recompute == Recompute::modules;
    if (encoder.recompute && !again) {
        out.refused.emplace_back(
            "model.encoder.recompute needs a plan that computes parts of its layers again: recompute: full, half or "
            "modules, or selective with attention: unfused");
    }
    for (const auto& [width, name] : {std::pair{encoder.heads, "heads of the encoder"},
                                      std::pair{encoder.ffn, "values of the encoder's feed-forward width"},
                                      std::pair{encoder.projector, "values of the projector's width"}}) {
        if (width % plan.tensor != 0) {
            out.unfit.push_back(fmt::format("tensor {} must divide the {} {}", plan.tensor, width, name));
        }
    }
    return out;
}

RankWeights encoder_weights(const ModelSpec& model, const PlanSpec& plan, const LayerMix& layers) {
    const EncoderSpec& encoder = model.encoder;
    const auto t = static_cast<double>(plan.tensor);
    const double share = layers.encoder / static_cast<double>(encoder.layers);
    const double own = share * encoder.layer_parameters() / t + layers.projector * encoder.patch_parameters();
    RankWeights out;
    out.dense = layers.projector * encoder.projector_parameters(model.hidden) / t + (encoder.trained ? own : 0);
    out.frozen = encoder.trained ? 0 : 2 * own;
    return out;
}

double images_of(const ModelSpec& model, const PlanSpec& plan) {
    return static_cast<double>(plan.micro_batch) * model.encoder.images;
}

PlanSpec plan_of_encoder(const ModelSpec& model, const PlanSpec& plan) {
    PlanSpec out = plan;
    out.sequence_parallel = false;
    out.gather_precision.reset();
    // As many ranks and micro-batches, each of which has its images whole.
    out.data *= plan.context;
    out.global_batch *= plan.context;
    out.context = 1;
    out.context_exchange = ContextExchange::ring;
    out.context_inner = 0;
    out.overlap_tensor = plan.overlap_tensor == TensorOverlap::none ? TensorOverlap::none : TensorOverlap::backward;
    out.near_memory_sums = false;
    out.recompute = model.encoder.recompute ? plan.recompute : Recompute::none;
    out.recompute_layers = 0;
    out.experts = {};
    out.vocabulary = VocabularyParallel::none;
    return out;
}

}  // namespace orrery::training
