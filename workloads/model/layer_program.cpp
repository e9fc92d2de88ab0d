#include "workloads/model/layer_program.hpp"

#include "workloads/model/attention_form.hpp"

namespace orrery::model {

double LayerOperation::flops() const {
    if (kernel) {
        return std::visit(
            [](const auto& one) -> double {
                if constexpr (requires { one.flops(); }) {
                    return one.flops();
                } else {
                    return 0;
                }
            },
            *kernel);
    }
    return product() ? 2 * rows * in * out : 0;
}

LayerOperations before_attention(const LayerContext& at) {
    return attention_form(at.model, at.kind).before(at);
}

LayerOperations after_attention(const LayerContext& at) {
    return attention_form(at.model, at.kind).after(at);
}

LayerOperations beside_attention(const LayerContext& at, const CoreShape& shape) {
    return attention_form(at.model, at.kind).beside(at, shape);
}

const char* core_name(const ModelSpec& model, LayerKind kind) {
    return attention_form(model, kind).name();
}

Operation attention_core(const LayerContext& at, const CoreShape& shape) {
    return attention_form(at.model, at.kind).core(at, shape);
}

double cached_values(const ModelSpec& model, LayerKind kind) {
    return kind.part == LayerPart::feed_forward ? 0 : attention_form(model, kind).cached(model, kind);
}

double indexed_bytes(const ModelSpec& model, LayerKind kind) {
    const bool attends = kind.part == LayerPart::whole || kind.part == LayerPart::attention;
    return attends && model.indexer.given() && !model.is_linear(kind) ? model.indexer.cached_bytes() : 0;
}

LayerOperations layer_operations(const LayerContext& at, const CoreShape& shape, const ExpertShard& experts) {
    const auto hidden = static_cast<double>(at.model.hidden);
    LayerOperations out;
    const auto append = [&](const LayerOperations& more) { out.insert(out.end(), more.begin(), more.end()); };
    const auto norm = [&] {
        LayerOperation one{"norm", LayerRole::norm, at.rows / at.shard.rows, hidden, hidden};
        // A scale and an offset; blocks side by side are counted with a norm each.
        one.weights = (at.model.parallel_block ? 2 : 1) * 2 * hidden;
        one.kept = one.operands = hidden;  // what it reads and what it makes
        out.push_back(one);
    };
    const auto close = [&] {
        if (at.shard.tensor > 1) {
            out.push_back({"sum over tensor ranks", LayerRole::sum, at.rows, 0, hidden});
        }
        out.push_back({"residual", LayerRole::residual, at.rows / at.shard.rows, 2 * hidden, hidden});
    };
    const bool attends = at.kind.part != LayerPart::feed_forward;
    const bool feeds = at.kind.part == LayerPart::whole || at.kind.part == LayerPart::feed_forward;
    norm();
    if (attends) {
        append(before_attention(at));
        if (at.kind.part != LayerPart::state_space || at.phase != LayerPhase::training) {
            append(beside_attention(at, shape));
            LayerOperation core{core_name(at.model, at.kind), LayerRole::core, shape.sequences * shape.queries};
            core.kernel = attention_core(at, shape);
            core.operands = at.model.is_linear(at.kind) || at.kind.part == LayerPart::state_space
                                ? 0
                                : at.model.value_width() / at.shard.tensor;
            out.push_back(core);
        }
        append(after_attention(at));
    }
    if (attends && feeds && !at.model.parallel_block) {
        close();
        norm();
    }
    if (feeds) {
        append(at.kind.experts ? routed_feed_forward(at, experts)
                               : dense_feed_forward(at, static_cast<double>(at.model.ffn) / at.shard.tensor));
    }
    close();
    return out;
}

double product_weights(const LayerOperations& operations) {
    double sum = 0;
    for (const LayerOperation& one : operations) {
        sum += one.product() ? one.weights : 0;
    }
    return sum;
}

double all_weights(const LayerOperations& operations) {
    double sum = 0;
    for (const LayerOperation& one : operations) {
        sum += one.weights;
    }
    return sum;
}

}  // namespace orrery::model
