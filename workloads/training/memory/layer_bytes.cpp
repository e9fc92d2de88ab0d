#include "workloads/training/memory/layer_bytes.hpp"

#include "sim/base/error.hpp"
#include "workloads/model/layer_program.hpp"
#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/slices.hpp"
#include "workloads/training/plan/experts.hpp"

namespace orrery::training {

namespace {

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
    if (plan.has<SlicePlan>()) {
        out.norms = (slices_of(model, plan, LayerProduct::attention_in).empty() ? 0 : 1) +
                    (slices_of(model, plan, LayerProduct::ffn_in).empty() ? 0 : 1);
        out.down = false;
        for (const AdapterShape& one : slices_of(model, plan, LayerProduct::ffn_out)) {
            out.adapter_bytes += 2 * one.inputs;  // the slice's inputs alone
        }
        return out;
    }
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

}  // namespace

LayerBytes layer_bytes(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, LayerKind kind) {
    const auto t = static_cast<double>(plan.tensor);
    const double tokens =
        static_cast<double>(model.sequence) / static_cast<double>(plan.context) * static_cast<double>(plan.micro_batch);
    const double sharded = plan.sequence_parallel ? t : 1;
    const double operand = software.fused_casts ? plan.operand_bytes() : 2;
    const KeptInputs inputs = kept_inputs(model, plan);
    const RecomputeModules modules = plan.modules();
    const bool whole = kind.part == LayerPart::whole;
    const bool attends = whole || kind.part == LayerPart::attention;
    const bool feeds = whole || kind.part == LayerPart::feed_forward;
    LayerBytes out;
    double feed_forward = 0;
    double activation = 0;
    const LayerContext at{model, kind, {t, t, 1}, LayerPhase::training, tokens};
    const auto operands = [&](const LayerOperation& one) { return one.rows * one.operands * operand; };
    for (const LayerOperation& one : layer_operations(at, {})) {
        if (one.role == LayerRole::norm) {
            out.kept += (2 * one.rows * one.kept + (modules.norm ? 0 : inputs.norms / 2 * operands(one))) / sharded;
        } else if (one.role == LayerRole::residual) {
            out.kept += model.dropout ? one.rows * one.out / sharded : 0;  // a mask of a byte
        } else if (one.role == LayerRole::core && !modules.attention) {
            out.kept += tokens * one.operands * operand;
        }
    }
    if (kind.part != LayerPart::feed_forward) {
        for (const LayerOperation& one : before_attention(at)) {
            out.kept += one.role == LayerRole::core ? 0 : 2 * one.rows * one.kept + operands(one);
        }
    }
    if (feeds && !kind.experts) {
        for (const LayerOperation& one : dense_feed_forward(at, static_cast<double>(model.ffn) / t)) {
            activation += inputs.down ? operands(one) : 0;
            feed_forward += 2 * one.rows * one.kept + (inputs.down ? operands(one) : 0);
        }
    }
    if (kind.experts) {
        const RoutedActivations routed = expert_activations(model, plan, tokens);
        feed_forward = routed.all;
        activation = routed.activated;
    }
    if (feeds) {
        const bool all = modules.ffn || (kind.experts && plan.recompute == Recompute::experts);
        out.again = all ? feed_forward : modules.activation ? activation : 0;
        out.kept += feed_forward - out.again + (whole && !kind.experts ? tokens * inputs.adapter_bytes : 0);
    }
    // Scores, their softmax and its dropout: kept where nothing computes them again.
    if (attends && !model.is_linear(kind) && plan.attention == AttentionKernel::unfused &&
        plan.recompute != Recompute::selective && !modules.attention) {
        out.kept += 5 * static_cast<double>(model.heads) * static_cast<double>(model.sequence) * tokens / t;
    }
    ORRERY_ASSERT(out.kept >= 0 && out.again >= 0);
    return out;
}

}  // namespace orrery::training
