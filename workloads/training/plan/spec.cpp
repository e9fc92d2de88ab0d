#include "workloads/training/plan/spec.hpp"

#include "workloads/training/plan/encoder.hpp"
#include "workloads/training/plan/name_list.hpp"

#include <algorithm>

namespace orrery::training {

bool PlanSpec::overlaps() const {
    const bool ring = context > 1 && context_exchange != ContextExchange::all_gather &&
                      context_exchange != ContextExchange::all_to_all;
    return overlap_tensor != TensorOverlap::none || overlap_pipeline || (ring && overlap_context) || overlap_data ||
           overlap_parameters || experts.overlap != ExpertOverlap::none || experts.pieces > 1 ||
           features.any([](const PlanFeature& one) { return one.overlaps(); });
}

LossKernels loss_kernels(const PlanSpec& plan, const SoftwareSpec& software) {
    if (plan.loss != LossKernels::software) {
        return plan.loss;
    }
    return plan.fusion == Fusion::eager ? LossKernels::separate : software.loss;
}

double SoftwareSpec::bucket_weights(double ranks) const {
    constexpr double kMegatronCore = 40e6;  // DistributedDataParallelConfig.bucket_size: max(40e6, 1e6 * ranks)
    const double least = gradient_bucket.value > 0 ? gradient_bucket.value : kMegatronCore;
    return std::max(least, gradient_bucket_per_rank.value * ranks);
}

LayerMix mix_of(const ModelSpec& model, std::int64_t first, std::int64_t count, bool front) {
    LayerMix mix;
    if (front && model.encoder.given()) {
        mix.encoder = static_cast<double>(model.encoder.layers);
        mix.projector = 1;
    }
    for (std::int64_t layer = first; layer < first + count; ++layer) {
        const LayerKind kind = model.kind_of(layer);
        double& of = kind.experts                           ? mix.experts
                     : kind.part == LayerPart::attention    ? mix.attention
                     : kind.part == LayerPart::feed_forward ? mix.feed_forward
                     : kind.part == LayerPart::state_space  ? mix.state_space
                                                            : mix.dense;
        of += 1;
    }
    return mix;
}

std::vector<std::uint32_t> split_layers(std::int64_t layers, std::int64_t chunks) {
    const bool ends_count = layers % chunks != 0 && (layers + 2) % chunks == 0 && chunks > 1;
    const std::int64_t total = ends_count ? layers + 2 : layers;
    std::vector<std::uint32_t> out(static_cast<std::size_t>(chunks), static_cast<std::uint32_t>(total / chunks));
    for (std::int64_t i = 0; i < total % chunks; ++i) {
        ++out[static_cast<std::size_t>(i)];
    }
    if (ends_count) {
        --out.front();
        --out.back();
    }
    return out;
}

std::vector<std::uint32_t> layers_of_parts(const ModelSpec& model, const PlanSpec& plan) {
    if (plan.stages.empty()) {
        return split_layers(model.layers, plan.parts());
    }
    return {plan.stages.begin(), plan.stages.end()};
}

RankWeights weights_of(const ModelSpec& model, const PlanSpec& plan, const LayerMix& layers, double tables) {
    std::optional<RankWeights> own;
    plan.features.each([&](const PlanFeature& one) { own = own ? own : one.own_weights(model, plan, layers, tables); });
    if (own) {
        return *own;
    }
    // Of a layer of experts; in a pattern it has no attention.
    const double beside = model.unrouted_parameters() + (model.hybrid() ? 2 : 4) * static_cast<double>(model.hidden) +
                          (model.hybrid() ? 0 : model.attention_parameters());
    double parts = 0;  // of a hybrid
    if (model.hybrid()) {
        parts = layers.attention * model.parameters_of(LayerPart::attention) +
                layers.feed_forward * model.parameters_of(LayerPart::feed_forward) +
                layers.state_space * model.parameters_of(LayerPart::state_space);
    }
    RankWeights out = {
        (layers.dense * model.layer_parameters() + layers.experts * beside + parts +
         tables * model.embedding_parameters()) /
            static_cast<double>(plan.tensor),
        layers.experts * model.routed_parameters() / static_cast<double>(plan.experts.expert * plan.expert_tensor())};
    return model.encoder.given() ? out += encoder_weights(model, plan, layers) : out;
}

double updated_weights(const PlanSpec& plan, const RankWeights& weights) {
    if (plan.zero == 0) {
        return weights.total();
    }
    return weights.dense / static_cast<double>(degrees_of(plan).optimizer) +
           weights.experts / static_cast<double>(plan.expert_data() * plan.copies());
}

std::int64_t PlanSpec::islands() const {
    std::int64_t out = 1;
    features.each([&](const PlanFeature& one) { out *= one.islands(); });
    return std::max<std::int64_t>(1, out);
}

std::int64_t PlanSpec::sharers() const {
    std::int64_t out = 1;
    features.each([&](const PlanFeature& one) { out *= one.sharers(); });
    return out;
}

bool PlanSpec::sums_gradients() const {
    return !features.any([](const PlanFeature& one) { return !one.sums_gradients(); });
}

bool PlanSpec::frozen() const {
    return features.any([](const PlanFeature& one) { return one.freezes(); });
}

bool PlanSpec::by_layer() const {
    return (pipeline == 1 && zero >= 2) || features.any([&](const PlanFeature& one) { return one.by_layer(*this); });
}

PlanProblems feature_problems(const ModelSpec& model, const PlanSpec& plan) {
    PlanProblems out;
    plan.features.each([&](const PlanFeature& one) { one.check(model, plan, out); });
    return out;
}

std::vector<std::string> resolve_features(PlanSpec& plan) {
    std::vector<std::string> out;
    const FeatureSet given = plan.features;
    given.each([&](const PlanFeature& one) {
        const std::vector<std::string> problems = one.resolve(plan);
        out.insert(out.end(), problems.begin(), problems.end());
    });
    return out;
}

ShardDegrees degrees_of(const PlanSpec& plan) {
    const std::int64_t all = plan.alike();
    const std::int64_t shard = plan.shard > 0 ? plan.shard : all;
    ShardDegrees out = {plan.zero >= 3 ? shard : 1, plan.zero >= 2 ? shard : 1,
                        plan.zero >= 3   ? shard
                        : plan.zero >= 1 ? all
                                         : 1,
                        0};
    plan.features.each([&](const PlanFeature& one) { one.share(plan, out); });
    return out;
}

double flops_per_token(const ModelSpec& model, const PlanSpec& plan) {
    std::optional<double> own;
    plan.features.each([&](const PlanFeature& one) { own = own ? own : one.flops_per_token(model, plan); });
    return own ? *own : model.flops_per_token();
}

const std::vector<std::string>& recompute_module_names() {
    static const std::vector<std::string> kNames = {"norm", "activation", "attention", "ffn"};
    return kNames;
}

double PlanSpec::operand_bytes() const {
    constexpr double kBlockScale = 1.0 / 32;  // MXFP8: 1 byte for 32 values; of Hopper: 4 for 128
    constexpr double kFp4Scale = 1.0 / 16;    // NVFP4: 1 byte for 16 values
    switch (precision) {
        case Precision::fp8:
            return 1 + (fp8_scaling == Fp8Scaling::block ? kBlockScale : 0);
        case Precision::fp4:
            return 0.5 + kFp4Scale;
        default:
            return 2;
    }
}

RecomputeModules PlanSpec::modules() const {
    RecomputeModules out;
    if (recompute != Recompute::modules) {
        return out;
    }
    const std::vector<std::string> given = names_in(recompute_modules);
    bool* const members[] = {&out.norm, &out.activation, &out.attention, &out.ffn};
    for (std::size_t i = 0; i < recompute_module_names().size(); ++i) {
        *members[i] = std::find(given.begin(), given.end(), recompute_module_names()[i]) != given.end();
    }
    return out;
}

}  // namespace orrery::training
