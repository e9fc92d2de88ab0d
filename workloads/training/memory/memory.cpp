#include "workloads/training/memory/memory.hpp"

#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/sharding.hpp"
#include "workloads/training/plan/encoder.hpp"
#include "workloads/training/plan/experts.hpp"
#include "workloads/training/plan/state_space.hpp"

#include <algorithm>
#include <iterator>

namespace orrery::training {

namespace {

// B per token that latent attention keeps beyond the queries, keys and values of its heads: the compressed vectors.
double latent_bytes(const ModelSpec& model) {
    return model.latent.kv_rank > 0
               ? 2 * static_cast<double>(model.latent.q_rank + model.latent.kv_rank + model.latent.rotary)
               : 0;
}

struct RoutedActivations {
    double all;        ///< B
    double activated;  ///< of them, what the function between the experts' products wrote
};

// B that the feed-forward of a layer with experts keeps on a rank for one micro-batch of `tokens`.
RoutedActivations expert_activations(const ModelSpec& model, const PlanSpec& plan, double tokens) {
    const auto t = static_cast<double>(plan.tensor);
    const auto h = static_cast<double>(model.hidden);
    const double own = tokens / t;
    const ExpertLoad load = load_of(model.experts, plan);
    const double sent = own * static_cast<double>(model.experts.topk) * load.kept;
    const double rows = expert_rows(model.experts, plan, own, load);
    const double width = static_cast<double>(model.experts.ffn) / static_cast<double>(plan.expert_tensor());
    const double shared = static_cast<double>(model.experts.shared);
    const double inner = model.gated ? 6 : 4;
    // Rows as they come in, what is between the products, and what comes back to be weighted; the router's logits in 32 bits.
    return {2 * h * rows + inner * width * rows + 2 * h * sent + tokens * inner * shared / t +
                4 * own * static_cast<double>(model.experts.count),
            2 * width * rows};
}

/// Of a layer's products, what their weights' gradients need. Of a frozen product the input is kept for its adapter alone, with what
/// it brings down to the rank.
struct KeptInputs {
    double norms = 2;          ///< outputs of a layer's two norms
    bool down = true;          ///< that of the activation function
    double adapter_bytes = 0;  ///< a token
};
KeptInputs kept_inputs(const ModelSpec& model, const PlanSpec& plan) {
    KeptInputs out;
    const auto& adapters = plan.feature<AdapterPlan>();
    if (!adapters.given) {
        return out;
    }
    const auto count = [&](LayerProduct product) {
        const std::size_t number = adapters_of(model, plan, product).size();
        out.adapter_bytes += 2 * static_cast<double>(adapters.rank) * static_cast<double>(number);
        return number;
    };
    (void)count(LayerProduct::attention_out);  // the core keeps its output itself
    out.norms = (count(LayerProduct::attention_in) > 0 ? 1 : 0) + (count(LayerProduct::ffn_in) > 0 ? 1 : 0);
    out.down = count(LayerProduct::ffn_out) > 0;
    return out;
}

// Bytes that the loss holds per logit at its peak: logits in 16 bits, with the exponentials in 32, or with their copy in 32 as well
// where each step is a kernel (PyTorch's own cross entropy: outputs and two gradients in 32); else the gradients at most.
double logit_bytes(LossKernels kernels) {
    switch (kernels) {
        case LossKernels::separate:
            return 2 + 4 + 4;
        case LossKernels::online:
            return 2 + 2;
        case LossKernels::fused:
            return 2;
        default:
            return 2 + 4;
    }
}

// One layer of the kind with the most weights among them.
LayerMix largest_of(const ModelSpec& model, const LayerMix& layers) {
    if (!model.hybrid()) {
        return layers.experts > 0 ? LayerMix{0, 1} : LayerMix{1, 0};
    }
    struct Row {
        double count;
        LayerPart part;
        LayerMix one;
    };
    const Row rows[] = {{layers.attention, LayerPart::attention, {0, 0, 1, 0, 0}},
                        {layers.feed_forward, LayerPart::feed_forward, {0, 0, 0, 1, 0}},
                        {layers.state_space, LayerPart::state_space, {0, 0, 0, 0, 1}}};
    LayerMix out;
    double most = 0;
    for (const Row& row : rows) {
        if (const double weights = model.parameters_of(row.part); row.count > 0 && weights > most) {
            most = weights;
            out = row.one;
        }
    }
    return out;
}

}  // namespace

MemoryUse memory_of(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, const LayerMix& layers,
                    bool first_stage, bool last_stage, double in_flight, double encoded) {
    const auto t = static_cast<double>(plan.tensor);
    const bool shared = first_stage && last_stage && model.tied_embeddings;
    const bool cut = plan.vocabulary != VocabularyParallel::none;
    const auto stages = static_cast<double>(plan.pipeline);
    const double tables = cut      ? (model.tied_embeddings ? 1 : 2) / stages
                          : shared ? 1
                                   : (first_stage ? 1 : 0) + (last_stage ? 1 : 0);
    const RankWeights held = weights_of(model, plan, layers, tables);
    const ShardDegrees degrees = degrees_of(plan);
    const auto expert_group = static_cast<double>(plan.expert_data() * plan.copies());
    const auto divided = [&](std::int64_t ranks, bool experts) {
        return held.dense / static_cast<double>(ranks) + held.experts / (experts ? expert_group : 1);
    };
    MemoryUse use;
    use.weights = 2 * divided(degrees.weights, plan.zero >= 3) + held.frozen / static_cast<double>(degrees.weights);
    if (degrees.secondary > 0) {
        use.weights += 2 * held.dense / static_cast<double>(degrees.secondary);
    }
    // Gradients that add up over micro-batches or that are reduced in fp32 take 4 bytes; those of 16 bits may stay beside them.
    const bool wide = plan.gradient_precision == Precision::fp32;
    const bool both = wide && software.keeps_gradients && !software.fused_gradient_accumulation;
    const double gradient = (wide ? 4 : 2) + (both ? 2 : 0);
    use.gradients = gradient * divided(degrees.gradients, plan.zero >= 2);
    use.optimizer = 12 * held.dense / static_cast<double>(degrees.optimizer) +
                    12 * held.experts / (plan.zero >= 1 ? expert_group : 1);
    if (plan.zero >= 3) {
        const LayerMix one = largest_of(model, layers);
        const double quantised = plan.feature<ShardingPlan>().weight_bits > 0 ? weight_wire_bytes(plan) : 0;
        const auto bytes_of = [&](const LayerMix& layer) {
            const RankWeights gathered = weights_of(model, plan, layer, 0);
            return gathered.bytes() + quantised * gathered.total();
        };
        LayerMix encoder;
        encoder.encoder = 1;
        const double most = layers.encoder > 0 ? std::max(bytes_of(one), bytes_of(encoder)) : bytes_of(one);
        use.buffers += gathered_layers(plan) * most;
    }
    plan.features.each([&](const PlanFeature& one) { one.states(model, plan, held, use); });
    const double s = static_cast<double>(model.sequence) / static_cast<double>(plan.context);
    const double sbh = s * static_cast<double>(plan.micro_batch) * static_cast<double>(model.hidden);
    // Equation 2 counts 34 sbh for a plain FFN of 4h with dropout: 10 outside the tensor-parallel region, 24 inside.
    const double width = static_cast<double>(model.ffn) / static_cast<double>(model.hidden);
    // Under grouped queries keys and values are narrower. Operands that are cast before a product are kept in fewer bits.
    const bool latent = model.latent.kv_rank > 0;
    const auto hidden = static_cast<double>(model.hidden);
    const double queries = (latent ? (model.query_width() + model.value_width()) / 2 : model.q_width()) / hidden;
    const double keys = latent ? queries : model.kv_width() / hidden;
    const double operand = software.fused_casts ? plan.operand_bytes() : 2;  // bytes of a value before a product
    const double saved = 2 - operand;
    const KeptInputs inputs = kept_inputs(model, plan);
    const double ffn = (model.gated ? 6 : 4) * width - saved * width - (inputs.down ? 0 : operand * width);
    double inside = 4 * queries + 4 * keys + ffn - saved * queries;
    double outside = (model.dropout ? 10 : 8) - 2 * saved;
    // What modules compute again is not kept: the norms' outputs, the core's, the activation function's, or all of the feed-forward.
    const RecomputeModules modules = plan.modules();
    const double again = modules.ffn                         ? ffn
                         : modules.activation && inputs.down ? operand * width
                                                             : 0;  // of the feed-forward
    outside -= modules.norm ? 2 * operand : (2 - inputs.norms) * operand;
    inside -= modules.attention ? operand * queries : 0;
    // Attention scores, their softmax and its dropout: kept only where nothing is recomputed.
    const double scores = plan.attention == AttentionKernel::unfused
                              ? 5 * static_cast<double>(model.heads) * static_cast<double>(model.sequence) /
                                    static_cast<double>(model.hidden)
                              : 0;
    const double kept_scores = plan.recompute == Recompute::selective || modules.attention ? 0 : scores;
    const double tokens = s * static_cast<double>(plan.micro_batch);
    const double around = outside / (plan.sequence_parallel ? t : 1);
    double layer =
        sbh * (around + (inside - again + kept_scores) / t) + tokens * (latent_bytes(model) + inputs.adapter_bytes);
    double expert_layer = 0;
    double expert_again = 0;
    if (layers.experts > 0) {
        const RoutedActivations routed = expert_activations(model, plan, tokens);
        expert_again = plan.recompute == Recompute::experts || modules.ffn ? routed.all
                       : modules.activation                                ? routed.activated
                                                                           : 0;
        expert_layer = sbh * (around + (inside - ffn + kept_scores) / t) + tokens * latent_bytes(model) + routed.all -
                       expert_again;
    }
    // Of a hybrid's layers half of what is around a whole one, and one of the parts.
    double attention = sbh * (around / 2 + (inside - ffn + kept_scores) / t);
    double feed_forward = sbh * (around / 2 + (ffn - again) / t);
    double state_space = sbh * around / 2 + tokens * state_space_bytes(model, operand) / t;
    // Of the layer in work: what it computes again, under full recomputation its scores too.
    double working = std::max(layers.dense + layers.feed_forward > 0 ? sbh * again / t : 0, expert_again);
    double* const kinds[] = {&layer, &expert_layer, &attention, &feed_forward, &state_space};
    const double counts[] = {layers.dense, layers.experts, layers.attention, layers.feed_forward, layers.state_space};
    if (plan.recompute == Recompute::full) {
        working = 0;
        const double input = 2 * sbh / (plan.sequence_parallel ? t : 1);
        const double share = plan.recomputed(layers.total() / static_cast<double>(plan.chunks));
        for (std::size_t i = 0; i < std::size(kinds); ++i) {
            working = std::max(working, counts[i] > 0 ? *kinds[i] : 0);
            *kinds[i] = share * input + (1 - share) * *kinds[i];
        }
    }
    double held_by_layers = 0;
    for (std::size_t i = 0; i < std::size(kinds); ++i) {
        *kinds[i] /= plan.recompute == Recompute::half ? 2 : 1;
        held_by_layers += *kinds[i] * counts[i];
    }
    const auto chunks = static_cast<double>(plan.chunks);
    KeptActivations under_way;
    under_way.layers = layers.total();
    under_way.layer = layer;
    under_way.input = 2 * sbh / (plan.sequence_parallel ? t : 1);
    under_way.kept = held_by_layers / chunks * in_flight;
    under_way.working = working;
    plan.features.each([&](const PlanFeature& one) { one.keep(plan, under_way); });
    use.activations = under_way.kept + under_way.working;
    if (layers.encoder > 0) {
        use.activations += encoder_activations(model, plan, software, encoded);
    }
    const double logit = logit_bytes(loss_kernels(plan, software));
    if (cut) {
        // A stage's part of them for two micro-batches, and the input of the output layer with its gradient for each.
        use.activations += 2 * s * static_cast<double>(plan.micro_batch) *
                           (static_cast<double>(model.vocabulary) / t / stages * logit + 4 * hidden);
    } else if (last_stage) {
        use.activations +=
            s * static_cast<double>(plan.micro_batch) * static_cast<double>(model.vocabulary) / t * logit;
    }
    if (layers.experts > 0 && plan.experts.shadowed > 0) {
        // Weights and gradients of one layer's copies.
        use.buffers += 4 * static_cast<double>(plan.experts.shadowed) * model.routed_parameters() /
                       static_cast<double>(model.experts.count * plan.expert_tensor());
    }
    if (plan.gathers_keys()) {
        // Of one layer, of all ranks of the sequence.
        const double gathered = software.repeats_keys ? model.q_width() : model.kv_width();
        use.buffers += 2 * tokens * static_cast<double>(plan.context) * gathered / t * 2;
    }
    use.buffers += software.reserved_memory.value;
    return use;
}

// Layers by the closed forms of memory.hpp, of an image at a time. Of the projector the merged tokens that come in, what its first
// product makes and what the function after it makes.
double encoder_activations(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software,
                           double in_flight) {
    const EncoderSpec& encoder = model.encoder;
    const double images = images_of(model, plan);
    const double between = encoder.projector > 0 ? 4 * static_cast<double>(encoder.projector) : 0;
    const double projector =
        encoder.places() * (2 * encoder.merged_width() + between / static_cast<double>(plan.tensor));
    double layers = 0;
    if (encoder.trained) {
        PlanSpec one = plan_of_encoder(model, plan);
        one.micro_batch = 1;
        one.chunks = 1;
        one.zero = 0;
        one.features = {};
        layers = memory_of(encoder_layers(encoder), one, software, LayerMix{static_cast<double>(encoder.layers)}, false,
                           false, in_flight)
                     .activations;
    }
    return images * (layers + in_flight * projector);
}

}  // namespace orrery::training
