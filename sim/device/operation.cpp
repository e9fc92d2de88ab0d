#include "sim/device/operation.hpp"

#include "sim/base/math.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::device {

double GroupedGemm::active_experts() const {
    if (experts <= 1) {
        return experts;
    }
    // Each token picks topk different experts: an expert stays idle with (1 - topk / experts)^tokens.
    const double idle = std::max(0.0, 1 - topk / experts);
    return std::min(experts, std::max(topk, experts * (1 - pow_pinned(idle, tokens))));
}

double GroupedGemm::bytes(double active) const {
    const double b = weight_only ? bytes_of(weights) : bytes_of(precision);
    return bytes_of(precision) * rows() * k + b * active * k * n + 2 * rows() * n;
}

// Loads between 1 and 0.8 `tokens` with density x^-1.2, brought to the mean of all choices: experts whose load rounds to none
// stay idle. (The sweeps of ai-dynamo/aiconfigurator, collector/, draw them so where there are more choices than experts.)
static double wanted_share(double tokens, double choices) {
    constexpr double kExponent = 1.2;
    const double most = 0.8 * tokens;
    const double tail = pow_pinned(most, 1 - kExponent);
    const double mean = (kExponent - 1) / (2 - kExponent) * (pow_pinned(most, 2 - kExponent) - 1) / (1 - tail);
    const double least = std::max(1.0, 0.5 * mean / choices);
    return (pow_pinned(least, 1 - kExponent) - tail) / (1 - tail);
}

double FusedExperts::active_experts() const {
    const double choices = tokens * topk / experts;
    if (skewed && choices >= 1 && tokens > 2) {
        return std::min(experts, std::max(topk, experts * wanted_share(tokens, choices)));
    }
    return in_turn || skewed ? std::min(experts, std::max(1.0, std::ceil(tokens * topk))) : up().active_experts();
}

GroupedGemm FusedExperts::up() const {
    return GroupedGemm{tokens, experts, topk, gated ? 2 * ffn : ffn, hidden, precision, weight_only, weights, scaling};
}

GroupedGemm FusedExperts::down() const {
    return GroupedGemm{tokens, experts, topk, hidden, ffn, precision, weight_only, weights, scaling};
}

double Attention::density() const {
    // Causal: the diagonal counts whole. With equal lengths this is (n + 1) / 2n.
    double seen = keys;
    if (causal) {
        seen = keys - (queries - 1) / 2;
    }
    if (window > 0 && window < keys) {
        // Each query sees at most `window` keys; the first ones see fewer.
        const double ramp = causal ? std::min(queries, window) : 0;
        const double early = std::max(0.0, queries - std::max(0.0, keys - window));
        const double partial = causal ? std::min(ramp, early) : 0;
        seen = (partial * (partial + 1) / 2 + (queries - partial) * window) / queries;
    }
    return std::max(1.0, seen) / keys;
}

double Attention::keys_read() const {
    const double reach = window > 0 ? std::min(keys, window + queries - 1) : keys;
    const double paged = block > 1 ? std::ceil(reach / block) * block : reach;
    const double shared = std::min(shared_keys, paged);
    return paged - shared + shared / std::max(1.0, sharers);
}

double Attention::bytes() const {
    // Queries and outputs in 16 bits; keys and values once for each group of heads.
    const double forward =
        batch_heads * head_dim * (2 * 2 * queries + 2 * bytes_of(cache) * keys_read() / std::max(1.0, group));
    return backward ? 2 * forward : forward;
}

double LatentAttention::flops() const {
    if (decodes() || sparse()) {
        return 2 * batch * queries * heads * (sparse() ? chosen : keys) * (2 * latent + rotary);
    }
    const double seen = keys - (queries - 1) / 2;
    return 2 * batch * heads * queries * seen * (2 * head_dim + rotary);
}

double LatentAttention::bytes() const {
    if (decodes() || sparse()) {
        // The latent serves as key and value: read once. Queries beside each other choose much the same keys.
        const double read = sparse() ? chosen : keys;
        return batch * (bytes_of(cache) * read * (latent + rotary) + 2 * queries * heads * (2 * latent + rotary));
    }
    return 2 * batch * heads * (queries * (2 * head_dim + rotary) + keys * (2 * head_dim + rotary));
}

TopChoice choice_of(double batch, double queries, double keys, double chosen) {
    const double least = std::max(chosen, keys - queries);
    return {batch * (keys - least), (least + 1 + keys) / 2, chosen};
}

// Products of a token and head, those inside a chunk half by causality. Forward: keys with keys, both products of the inverse of what
// they make, its application to the state, the state's update and its reading, queries with keys, and their product with values. Backward
// the first are computed again; then gradients of values, states, queries and keys follow, and those through the inverse. The inverse
// itself: a triangular one.
double DeltaScan::flops() const {
    const double heads = batch * queries * value_heads;
    const double matrix = key_dim * value_dim;
    if (decodes()) {
        return heads * 7 * matrix;  // decay, reading for the key, an outer product and reading for the query
    }
    const double inside = std::min(chunk, std::max(1.0, queries));
    const double inverse = 2.0 / 3 * inside * inside;
    return backward ? heads * (16 * matrix + inside * (9 * key_dim + 5 * value_dim) + 3 * inverse)
                    : heads * (6 * matrix + inside * (3 * key_dim + 2 * value_dim) + inverse);
}

double DeltaScan::bytes() const {
    const double gates = 4 * value_heads * (1 + (channels ? key_dim : 1));
    const double token = 2 * (2 * key_heads * key_dim + 2 * value_heads * value_dim) + gates;
    const double states = trains || backward ? 0 : 2 * bytes_of(state) * value_heads * key_dim * value_dim;
    return batch * (queries * token * (backward ? 2 : 1) + states);
}

Precision precision_of(const Operation& operation) {
    return std::visit(
        [](const auto& one) {
            if constexpr (requires { one.precision; }) {
                return one.precision;
            } else {
                return Precision::bf16;
            }
        },
        operation);
}

}  // namespace orrery::device
