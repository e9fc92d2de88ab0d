#include "workloads/training/memory/memory.hpp"

#include "sim/base/error.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/sharding.hpp"
#include "workloads/training/memory/layer_bytes.hpp"
#include "workloads/training/memory/moments.hpp"
#include "workloads/training/plan/encoder.hpp"

#include <algorithm>
#include <iterator>

namespace orrery::training {

namespace {

// Bytes that the loss holds per logit at its peak: logits in 16 bits, with the exponentials in 32, or with their copy in 32 as well
// where each step is a kernel (PyTorch's own cross entropy: outputs and two gradients in 32); else the gradients at most.
double logit_bytes(LossKernels kernels) {
    switch (kernels) {
        case LossKernels::separate:
            return 2 + 4 + 4;
        case LossKernels::online:
            return 2 + 2;
        case LossKernels::fused:
        case LossKernels::chunked:
            return 2;
        default:
            return 2 + 4;
    }
}

// Bytes that the output layer and the loss hold per token at their peak, on all tensor-parallel ranks together.
double loss_bytes(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software) {
    const LossKernels kernels = loss_kernels(plan, software);
    const auto vocabulary = static_cast<double>(model.vocabulary);
    if (kernels == LossKernels::chunked) {
        return 6 * static_cast<double>(std::min(model.hidden, model.vocabulary));
    }
    // Logits in 32 bits and a copy of them one token further, over which a fused loss writes its gradients; else beside them the logits in
    // 16 bits and what the softmax makes.
    const double wide = kernels == LossKernels::fused ? 4 + 4 : 2 + 4 + 4 + 4;
    const bool widens = kernels == LossKernels::separate || kernels == LossKernels::fused;
    return vocabulary * (widens && software.allocation.wide_logits ? wide : logit_bytes(kernels));
}

// One layer of the kind with the most weights among them.
LayerMix largest_of(const ModelSpec& model, const LayerMix& layers) {
    if (!model.hybrid()) {
        return layers.experts > 0 ? LayerMix{0, 1} : LayerMix{1, 0};
    }
    if (layers.experts > 0) {
        return LayerMix{0, 1};
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
    const StateBytes types = state_bytes(plan, software);
    use.weights =
        types.weight * divided(degrees.weights, plan.zero >= 3) + held.frozen / static_cast<double>(degrees.weights);
    if (degrees.secondary > 0) {
        use.weights += 2 * held.dense / static_cast<double>(degrees.secondary);
    }
    // Gradients that add up over micro-batches or that are reduced in fp32 take 4 bytes; those of 16 bits may stay beside them.
    const bool wide = types.gradient > 2 || (types.states > 4 && plan.gradient_precision == Precision::fp32);
    const bool both = wide && software.keeps_gradients && !software.fused_gradient_accumulation;
    const double gradient = (wide ? 4 : 2) + (both ? 2 : 0);
    use.gradients = gradient * divided(degrees.gradients, plan.zero >= 2);
    use.optimizer = types.states * (held.dense / static_cast<double>(degrees.optimizer) +
                                    held.experts / (plan.zero >= 1 ? expert_group : 1));
    const bool moments = software.allocation.moments;
    if (plan.zero >= 3 && !moments) {
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
    const auto hidden = static_cast<double>(model.hidden);
    const double tokens = s * static_cast<double>(plan.micro_batch);
    struct Row {
        LayerKind kind;
        double count;
        double kept = 0;
    };
    Row rows[] = {{{}, layers.dense},
                  {{true, false, model.hybrid() ? LayerPart::feed_forward : LayerPart::whole}, layers.experts},
                  {{false, false, LayerPart::attention}, layers.attention},
                  {{false, false, LayerPart::feed_forward}, layers.feed_forward},
                  {{false, false, LayerPart::state_space}, layers.state_space}};
    // A stage has the model's share of layers of the second kind.
    const double linear = static_cast<double>(model::other_layers(model)) / static_cast<double>(model.layers);
    double working = 0;    // what the layer in work computes again
    double gradients = 0;  // between its products
    for (Row& row : rows) {
        if (row.count > 0) {
            LayerBytes one = layer_bytes(model, plan, software, row.kind);
            if (linear > 0 && row.kind.part == LayerPart::whole) {
                const LayerBytes other = layer_bytes(model, plan, software, {row.kind.experts, true});
                one.kept += linear * (other.kept - one.kept);
                one.again = std::max(one.again, other.again);
            }
            row.kept = one.kept;
            working = std::max(working, one.again);
            if (moments) {
                const ModuleBytes modules = module_bytes(model, plan, software, row.kind);
                row.kept = modules.kept - one.again;
                gradients = std::max(gradients, modules.gradients);
            }
        }
    }
    const auto chunks = static_cast<double>(plan.chunks);
    KeptActivations under_way;
    under_way.layers = layers.total();
    const bool wide_inputs = plan.has<AdapterPlan>() && plan.feature<AdapterPlan>().wide_inputs;
    under_way.input = (wide_inputs ? 4 : 2) * sbh / (plan.sequence_parallel ? t : 1);
    if (plan.recompute == Recompute::full) {
        // Of the layer in work all that it computes again, its scores too.
        const double share = plan.recomputed(layers.total() / chunks);
        for (Row& row : rows) {
            working = std::max(working, row.kept);
            row.kept = share * under_way.input + (1 - share) * row.kept;
        }
    }
    double held_by_layers = 0;
    for (Row& row : rows) {
        row.kept /= plan.recompute == Recompute::half ? 2 : 1;
        held_by_layers += row.kept * row.count;
    }
    under_way.layer = rows[0].kept;
    under_way.inputs = layers.total() / chunks * in_flight;
    under_way.kept = held_by_layers / chunks * in_flight;
    under_way.working = working;
    plan.features.each([&](const PlanFeature& one) { one.keep(plan, under_way); });
    ORRERY_ASSERT(under_way.kept >= 0 && under_way.working >= 0);
    use.activations = under_way.kept + under_way.working;
    if (layers.encoder > 0) {
        use.activations += encoder_activations(model, plan, software, encoded);
    }
    const double head = loss_bytes(model, plan, software);
    double logits = 0;
    if (cut) {
        // A stage's part of them for two micro-batches, and the input of the output layer with its gradient for each.
        logits = 2 * tokens * (head / t / stages + 4 * hidden);
    } else if (last_stage) {
        logits = tokens * head / t;
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
    if (!moments) {
        use.activations += logits;
        return use;
    }
    StageParts parts;
    parts.states = use;
    parts.held = held;
    parts.largest = weights_of(model, plan, largest_of(model, layers), 0);
    parts.tables = tables * model.embedding_parameters() / t;
    parts.kept = use.activations - under_way.working;
    parts.input = under_way.input;
    const bool again = plan.recompute == Recompute::full;
    parts.inputs = again ? under_way.inputs * under_way.input : 0;
    parts.working = std::max(0.0, under_way.working - (again ? under_way.input : 0)) + gradients;
    // What the output layer takes and its gradient, and of a loss by chunks the logits of one, as many as a row of hidden values.
    parts.logits = last_stage ? logits + 4 * tokens * hidden : 0;
    MemoryUse peak = peak_of_moments(plan, software, parts);
    peak.buffers += use.buffers;
    return peak;
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
