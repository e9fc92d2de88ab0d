// A feed-forward of routed experts: a router, the products of a few of many experts for each token, and experts that see all tokens.

#include "workloads/model/attention_form.hpp"

namespace orrery::model {

ExpertShard whole_experts(const ModelSpec& model, double tokens) {
    ExpertShard out;
    out.tokens = tokens;
    out.held = static_cast<double>(model.experts.count);
    out.choices = static_cast<double>(model.experts.topk);
    out.width = static_cast<double>(model.experts.ffn);
    return out;
}

LayerOperations routed_feed_forward(const LayerContext& at, const ExpertShard& shard) {
    const ExpertsSpec& experts = at.model.experts;
    const auto hidden = static_cast<double>(at.model.hidden);
    const auto count = static_cast<double>(experts.count);
    FusedExperts fused;
    fused.tokens = shard.tokens;
    fused.experts = shard.held;
    fused.topk = shard.choices;
    fused.topk_elsewhere = shard.elsewhere;
    fused.hidden = hidden;
    fused.ffn = shard.width;
    fused.gated = at.model.gated;
    fused.skewed = experts.skewed;
    fused.devices = shard.devices;
    LayerOperation routed{"routed experts", LayerRole::core, shard.tokens};
    routed.weights = shard.held * hidden * shard.width * (at.model.gated ? 3 : 2);
    routed.kernel = fused;
    LayerOperations out;
    if (const double wide = bytes_of(experts.gate) / 2; wide > 1) {
        out.push_back({"input of the router in 32 bits", LayerRole::choice, at.rows, hidden, wide * hidden});
    }
    out.push_back(product_of("router", LayerRole::router, at.rows, hidden, count));
    out.push_back({"choice of experts", LayerRole::choice, at.rows, count, count});
    out.push_back(routed);
    if (experts.shared > 0) {
        const LayerOperations all = dense_feed_forward(at, static_cast<double>(experts.shared) / shard.shared);
        out.insert(out.end(), all.begin(), all.end());
    }
    return out;
}

}  // namespace orrery::model
