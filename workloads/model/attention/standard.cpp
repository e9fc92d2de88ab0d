// Attention with keys and values of heads: multi-head, or grouped where query heads share them; to all tokens before, or
// through a window.

#include "workloads/model/attention/standard.hpp"

namespace orrery::model {

LayerOperations StandardAttention::before(const LayerContext& at) const {
    const ModelSpec& model = at.model;
    const double q = model.q_width() / at.shard.tensor;
    const double kv = model.kv_width() / at.shard.key_ranks;
    LayerOperations out;
    out.push_back(product_of("queries, keys and values", LayerRole::input, at.rows, static_cast<double>(model.hidden),
                             (model.output_gate ? 2 : 1) * q + 2 * kv));
    constexpr double kBoth = 2;  // queries and keys have kernels of their own
    if (model.query_key_norm == QueryKeyNorm::whole && at.shard.tensor > 1) {
        // Sums of squares, two numbers of 32 bits a token over all ranks, then the scaling.
        out.push_back({"squares of queries and keys", LayerRole::inner_norm, at.rows, q + kv, 0, kBoth});
        out.push_back({"sum of squares", LayerRole::sum, at.rows, 0, 2 * 2});
        out.push_back({"norm of queries and keys", LayerRole::inner_norm, at.rows, q + kv, q + kv, kBoth});
    } else if (model.query_key_norm != QueryKeyNorm::none) {
        out.push_back({"norm of queries and keys", LayerRole::inner_norm, at.rows, q + kv, q + kv, kBoth});
    }
    // Serving splits the product's result and writes the cache, whether it rotates queries and keys or not.
    const bool serves = at.phase != LayerPhase::training;
    const double cached = serves ? 2 * kv : 0;
    if (model.rotary || serves) {
        const double moved = q + kv + cached;
        LayerOperation position{"positions and cache", LayerRole::position, at.rows, moved, moved};
        position.launches = (model.rotary ? 1 : 0) + (serves ? 1 : 0);
        position.cached = cached;
        out.push_back(position);
    }
    return out;
}

LayerOperations StandardAttention::after(const LayerContext& at) const {
    const double q = at.model.q_width() / at.shard.tensor;
    LayerOperations out;
    if (at.model.output_gate) {
        out.push_back({"gate of attention's output", LayerRole::activation, at.rows, 2 * q, q});
    }
    out.push_back(
        product_of("output of attention", LayerRole::output, at.rows, q, static_cast<double>(at.model.hidden)));
    return out;
}

Attention StandardAttention::attention(const LayerContext& at, const CoreShape& shape) {
    const ModelSpec& model = at.model;
    Attention out;
    out.batch_heads = shape.sequences * shape.heads;
    out.queries = shape.queries;
    out.keys = shape.keys;
    out.head_dim = static_cast<double>(model.head_dim);
    out.window = at.kind.windowed ? static_cast<double>(model.window) : 0;
    if (at.phase == LayerPhase::training) {
        out.causal = model.causal;
        out.backward = shape.backward;
        out.fused = shape.fused;
        out.trains = !shape.backward;
        return out;
    }
    out.causal = shape.queries > 1;
    out.group =
        static_cast<double>(model.heads) / at.shard.tensor * at.shard.key_ranks / static_cast<double>(model.kv_heads);
    out.cache = shape.cache;
    out.block = shape.page;
    return out;
}

extern const PolicyRow<AttentionForm> kStandardAttention;
const PolicyRow<AttentionForm> kStandardAttention =
    policy_row<AttentionForm, StandardAttention>("standard", "all keys, or those in the window");

}  // namespace orrery::model
