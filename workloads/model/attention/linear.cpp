// A layer of linear attention by the delta rule in the place of attention: gated delta net (Yang et al., arXiv:2412.06464, as Qwen3-Next
// has it) and Kimi delta attention (Kimi Team, arXiv:2510.26692).
//
// Claims: queries, keys and values pass a causal convolution; a head of values keeps a state (sim/device/operation.hpp, DeltaScan), whose
// output is normed and multiplied by a gate. A gated delta net makes queries, keys, values and the gate by one product, and two numbers
// a head by another. Kimi delta attention makes its decays, a number a channel, and its gate by products through the width of a head,
// whose first ones every tensor-parallel rank does whole. The convolution has no bias. Ranks share heads. Nothing of a layer grows with
// the context. Training keeps what goes into the convolution, the scan and the norm.
// Limits: unit norms of queries and keys are part of the scan's kernels; serving's kernels make decays inside; where prompts are computed apart
// (engine.prefill), states are not sent with the cache.

#include "workloads/model/attention_form.hpp"

namespace orrery::model {

DeltaScan delta_scan(const LinearSpec& linear, double tensor) {
    DeltaScan out;
    out.key_heads = static_cast<double>(linear.key_heads) / tensor;
    out.value_heads = static_cast<double>(linear.value_heads) / tensor;
    out.key_dim = static_cast<double>(linear.key_dim);
    out.value_dim = static_cast<double>(linear.value_dim);
    out.chunk = static_cast<double>(linear.chunk);
    out.state = linear.state;
    out.channels = linear.kind == LinearKind::kimi_delta;
    return out;
}

namespace {

class LinearAttention final : public AttentionForm {
  public:
    [[nodiscard]] LayerOperations before(const LayerContext& at) const override {
        const LinearSpec& linear = at.model.linear;
        const double t = at.shard.tensor;
        const auto hidden = static_cast<double>(at.model.hidden);
        const double heads = static_cast<double>(linear.value_heads) / t;
        const double values = linear.values() / t;
        const double convolved = linear.convolved() / t;
        const bool channels = linear.kind == LinearKind::kimi_delta;
        const double decays = channels ? heads * static_cast<double>(linear.key_dim) : heads;
        LayerOperations out;
        if (channels) {
            const auto rank = static_cast<double>(linear.value_dim);
            out.push_back(product_of("queries, keys and values", LayerRole::input, at.rows, hidden, convolved + heads));
            out.push_back(product_of("compressed gates", LayerRole::input, at.rows / at.shard.rows, hidden, 2 * rank));
            out.push_back(product_of("decays of channels", LayerRole::input, at.rows, rank, decays));
            out.push_back(product_of("gate of the output", LayerRole::input, at.rows, rank, values));
        } else {
            out.push_back(
                product_of("queries, keys, values and gate", LayerRole::input, at.rows, hidden, convolved + values));
            out.push_back(product_of("steps and decays", LayerRole::input, at.rows, hidden, 2 * heads));
        }
        if (at.phase == LayerPhase::training) {  // written in 32 bits
            LayerOperation rates{"rates of decay", LayerRole::inner_norm, at.rows, decays + heads,
                                 2 * (decays + heads)};
            rates.kept = decays + heads;
            out.push_back(rates);
        }
        LayerOperation norm{"norm after the scan", LayerRole::inner_norm, at.rows, 2 * values, values};
        // With a decay's rate of each head, and an offset of each decay.
        norm.weights = static_cast<double>(linear.value_dim) + heads + decays;
        // What the convolution made, what the scan made, and its products inside chunks.
        norm.kept = convolved + values + heads * static_cast<double>(linear.chunk);
        norm.operands = values;
        out.push_back(norm);
        return out;
    }

    [[nodiscard]] LayerOperations after(const LayerContext& at) const override {
        return {product_of("output of linear attention", LayerRole::output, at.rows,
                           at.model.linear.values() / at.shard.tensor, static_cast<double>(at.model.hidden))};
    }

    [[nodiscard]] LayerOperations beside(const LayerContext& at, const CoreShape& shape) const override {
        const LinearSpec& linear = at.model.linear;
        const double convolved = linear.convolved() / at.shard.tensor;
        const double tokens = shape.sequences * shape.queries;
        const bool updates = shape.queries <= 1 && at.phase != LayerPhase::training;
        LayerOperation convolution{"causal convolution", LayerRole::core, tokens};
        convolution.weights = convolved * static_cast<double>(linear.convolution);
        // Read and written in 16 bits; a decoding step reads and writes the tokens before it too; a backward pass reads the gradient as well.
        const double kept = updates ? 2 * static_cast<double>(linear.convolution - 1) : 0;
        convolution.kernel = Streaming{2 * tokens * convolved * ((shape.backward ? 3 : 2) + kept), 1,
                                       updates ? StreamingKind::convolution_update : StreamingKind::convolution};
        return {convolution};
    }

    [[nodiscard]] const char* name() const override { return "delta rule"; }

    [[nodiscard]] Operation core(const LayerContext& at, const CoreShape& shape) const override {
        DeltaScan out = delta_scan(at.model.linear, at.shard.tensor);
        out.batch = shape.sequences;
        out.queries = shape.queries;
        out.trains = at.phase == LayerPhase::training;
        out.backward = shape.backward;
        return out;
    }

    [[nodiscard]] double cached(const ModelSpec&, LayerKind) const override { return 0; }
};

const LinearAttention kLinear;

}  // namespace

extern const AttentionForm& kLinearAttention;
const AttentionForm& kLinearAttention = kLinear;

}  // namespace orrery::model
