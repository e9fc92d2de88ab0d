#include "workloads/model/model_spec.hpp"

#include "workloads/model/attention_form.hpp"
#include "workloads/model/layer_program.hpp"

#include <algorithm>

namespace orrery::model {

std::int64_t ModelSpec::windowed_layers() const {
    return window == 0 && !linear.given() ? 0 : full_every > 0 ? layers - layers / full_every : layers;
}

LayerKind ModelSpec::kind_of(std::int64_t layer) const {
    if (hybrid()) {
        return {pattern[static_cast<std::size_t>(layer)] == 'E', false, part_of(layer)};
    }
    return {experts.count > 0 && layer >= experts.dense_layers && (layer + 1) % experts.every == 0,
            (window > 0 || linear.given()) && (full_every == 0 || (layer + 1) % full_every != 0)};
}

std::int64_t ModelSpec::expert_layers() const {
    if (hybrid()) {
        return std::count(pattern.begin(), pattern.end(), 'E');
    }
    return experts.count > 0 ? layers / experts.every - experts.dense_layers / experts.every : 0;
}

std::int64_t ModelSpec::layers_of(LayerKind kind, std::int64_t first, std::int64_t count) const {
    std::int64_t found = 0;
    for (std::int64_t layer = first; layer < first + count; ++layer) {
        found += kind_of(layer).index() == kind.index() ? 1 : 0;
    }
    return found;
}

double ModelSpec::query_width() const {
    return static_cast<double>(heads * (head_dim + (latent.kv_rank > 0 ? latent.rotary : 0)));
}

double ModelSpec::value_width() const {
    return static_cast<double>(heads * (latent.kv_rank > 0 ? latent.value_dim : head_dim));
}

double ModelSpec::attention_parameters(LayerKind kind) const {
    const LayerContext whole{*this, kind};
    return all_weights(before_attention(whole)) + all_weights(beside_attention(whole, {})) +
           all_weights(after_attention(whole));
}

double ModelSpec::attention_parameters() const {
    const double full = attention_parameters({});
    const std::int64_t other = other_layers(*this);
    if (other == 0) {
        return full;
    }
    const double share = static_cast<double>(other) / static_cast<double>(layers);
    return full + share * (attention_parameters({false, true}) - full);
}

double ModelSpec::routed_parameters() const {
    return static_cast<double>(experts.count) * static_cast<double>(hidden * experts.ffn) * (gated ? 3 : 2);
}

double ModelSpec::unrouted_parameters() const {
    // The shared experts and the gate.
    return static_cast<double>(hidden) *
           (static_cast<double>(experts.shared) * (gated ? 3 : 2) + static_cast<double>(experts.count));
}

double ModelSpec::layer_parameters() const {
    const double full = parameters_of(LayerPart::whole);
    return other_layers(*this) > 0 ? full + attention_parameters() - attention_parameters({}) : full;
}

double ModelSpec::embedding_parameters() const {
    return static_cast<double>(vocabulary) * static_cast<double>(hidden);
}

double ModelSpec::parameters() const {
    if (hybrid()) {
        return hybrid_parameters() + embedding_parameters() * (tied_embeddings ? 1 : 2) + encoder_parameters();
    }
    const auto routed = static_cast<double>(expert_layers());
    return (static_cast<double>(layers) - routed) * layer_parameters() +
           routed * (attention_parameters() + routed_parameters() + unrouted_parameters() +
                     4 * static_cast<double>(hidden)) +
           embedding_parameters() * (tied_embeddings ? 1 : 2) + encoder_parameters();
}

double ModelSpec::flops_per_token() const {
    const auto h = static_cast<double>(hidden);
    const auto s = static_cast<double>(sequence);
    if (hybrid()) {
        const auto attended = static_cast<double>(layers_with(LayerPart::attention));
        const auto scanned = static_cast<double>(layers_with(LayerPart::state_space));
        return 6 * (hybrid_matrices() + embedding_parameters()) + 3 * scanned * state_space.scan_flops() +
               12 * attended * q_width() * (s / 2) * computed_share(*this, {false, false, LayerPart::attention}) +
               encoder_flops() / s;
    }
    const auto routed = static_cast<double>(expert_layers());
    const double used =
        experts.count > 0 ? routed_parameters() * static_cast<double>(experts.topk) / static_cast<double>(experts.count)
                          : 0;
    const double matrix = (static_cast<double>(layers) - routed) * (layer_parameters() - 4 * h) +
                          routed * (attention_parameters() + used + unrouted_parameters()) + embedding_parameters();
    const auto windowed = static_cast<double>(windowed_layers());
    const double whole = causal ? s / 2 : s;
    double seen = whole;
    if (window > 0 && window < sequence) {
        // The first `window` tokens see half of it on average, the others all of it.
        const auto w = static_cast<double>(window);
        seen = (w * w / 2 + (s - w) * w) / s;
    }
    // Scores take the width of the queries, sums that of the values.
    const double width = (query_width() + value_width()) / 2;
    double through = windowed > 0 && !linear.given() ? windowed * seen * computed_share(*this, {false, true}) : 0;
    const double full = static_cast<double>(layers) - windowed;
    double scores = 0;  // of linear attention and of indexers
    if (linear.given()) {
        DeltaScan scan = delta_scan(linear, 1);
        scan.queries = s;
        scan.trains = true;
        scores += 3 * static_cast<double>(windowed) * scan.flops() / s;
    }
    if (indexer.given()) {
        scores += 3 * full * 2 * static_cast<double>(indexer.heads * indexer.dim) * whole;
        const auto w = static_cast<double>(std::min(indexer.topk, sequence));
        through += full * (w * w / 2 + (s - w) * w) / s;
    }
    const double to_all = indexer.given() ? 0 : full * whole * computed_share(*this, {});
    return 6 * matrix + 12 * width * (through + to_all) + scores + encoder_flops() / s;
}

static void describe(Fields& fields, ExpertsSpec& experts) {
    fields.integer({"count", "routed experts of a layer; 0: dense layers only", false, 0, 100'000}, experts.count);
    fields.when(experts.count > 0, "experts (count above 0)", [&](Fields& same) {
        same.integer({"topk", "experts that a token goes to", false, 0, 1000}, experts.topk);
        same.integer({"ffn", "width of one expert", false, 0, 10'000'000}, experts.ffn);
        same.integer({"shared", "width of the experts that see every token, together", false, 0, 10'000'000},
                     experts.shared);
        same.integer({"dense_layers", "first layers that keep the dense feed-forward", false, 0, 10000},
                     experts.dense_layers);
        same.enumeration({"gate", "precision of the router's product"}, precision_names(), experts.gate);
        same.boolean({"skewed", "route most tokens to a few experts; false: all experts are equally likely"},
                     experts.skewed);
        same.integer({"every", "period of layers with experts: the last of every N layers has them", false, 1, 1000},
                     experts.every);
        same.when(
            experts.group_topk > 0, "group_topk (of how many groups the experts of a token are)", [&](Fields& few) {
                few.integer({"groups", "groups that the experts are divided into, in order; 0: one", false, 0, 100'000},
                            experts.groups);
            });
        same.when(experts.groups > 0, "groups of experts", [&](Fields& few) {
            few.integer({"group_topk", "groups that a token's experts are in; 0: any", false, 0, 100'000},
                        experts.group_topk);
        });
    });
}

static void describe(Fields& fields, StateSpaceSpec& space) {
    fields.integer({"heads", "heads of a state-space layer", false, 0, 1'000'000}, space.heads);
    fields.integer({"head_dim", "width of a head", false, 1, 100'000}, space.head_dim);
    fields.integer({"state", "width of the state that a head keeps for each of its values", false, 1, 100'000},
                   space.state);
    fields.integer(
        {"groups", "groups of heads that share what writes their states and what reads them", false, 1, 1'000'000},
        space.groups);
    fields.integer({"convolution", "tokens that the convolution before the scan covers", false, 1, 1000},
                   space.convolution);
    fields.integer({"chunk", "tokens of a chunk of the scan", false, 1, 1'000'000}, space.chunk);
}

static void describe(Fields& fields, IndexerSpec& indexer) {
    fields.integer({"topk", "keys that a query attends to; 0: all, there is no indexer", false, 0, 100'000'000},
                   indexer.topk);
    fields.when(indexer.given(), "an indexer (topk above 0)", [&](Fields& same) {
        same.integer({"heads", "heads that score the keys", false, 1, 100'000}, indexer.heads);
        same.integer({"dim", "width of the key that is cached of a token", false, 1, 100'000}, indexer.dim);
    });
}

static void describe(Fields& fields, LinearSpec& linear) {
    fields.integer({"value_heads", "heads of values, each with a state; 0: no layer is linear", false, 0, 100'000},
                   linear.value_heads);
    fields.when(linear.given(), "linear attention (value_heads above 0)", [&](Fields& same) {
        same.enumeration({"kind",
                          "gated-delta: gated delta net, whose heads decay as a whole; kimi-delta: Kimi delta "
                          "attention, whose channels do"},
                         {"gated-delta", "kimi-delta"}, linear.kind);
        same.integer({"key_heads", "heads of queries and keys; 0: as value_heads", false, 0, 100'000},
                     linear.key_heads);
        same.integer({"key_dim", "width of a head's queries and keys", false, 1, 100'000}, linear.key_dim);
        same.integer({"value_dim", "width of a head's values", false, 1, 100'000}, linear.value_dim);
        same.integer({"convolution", "tokens that the convolution before the scan covers", false, 1, 1000},
                     linear.convolution);
        same.integer({"chunk", "tokens that the scan takes together", false, 1, 1'000'000}, linear.chunk);
        same.enumeration({"state", "precision of a sequence's states while it is served"}, precision_names(),
                         linear.state);
    });
}

// `head_dim`: that of the model, which values have where nothing else is said.
static void describe(Fields& fields, LatentSpec& latent, std::int64_t head_dim) {
    constexpr const char* kLatent = "latent attention (kv_rank above 0)";
    fields.integer({"kv_rank", "width of the compressed key and value; 0: ordinary attention", false, 0, 100'000},
                   latent.kv_rank);
    fields.when(latent.kv_rank > 0, kLatent, [&](Fields& same) {
        same.integer({"q_rank", "width that queries are compressed to; 0: not compressed", false, 0, 100'000},
                     latent.q_rank);
        same.integer({"rotary", "width of a head's part with position", false, 0, 100'000}, latent.rotary);
    });
    fields.when(latent.kv_rank > 0 || latent.value_dim == head_dim, kLatent, [&](Fields& same) {
        same.integer({"value_dim", "width of a head's values; 0: head_dim", false, 0, 100'000}, latent.value_dim);
    });
}

void describe(Fields& fields, ModelSpec& model) {
    fields.text({"name", "name of the model"}, model.name);
    fields.integer({"layers", "transformer layers", true, 1, 10000}, model.layers);
    fields.integer({"hidden", "width of the residual stream", true, 1, 1'000'000}, model.hidden);
    fields.integer({"heads", "attention heads", true, 1, 100'000}, model.heads);
    fields.when(model.latent.kv_rank == 0 || model.kv_heads == 0 || model.kv_heads == model.heads,
                "attention with keys and values of each head (latent attention has one compressed pair for all)",
                [&](Fields& same) {
                    same.integer(
                        {"kv_heads", "key/value heads (grouped-query attention); 0: as heads", false, 0, 100'000},
                        model.kv_heads);
                });
    fields.integer({"head_dim", "width of a head; 0: hidden / heads", false, 0, 100'000}, model.head_dim);
    fields.integer({"ffn", "width of the feed-forward layer; 0: 4 x hidden", false, 0, 10'000'000}, model.ffn);
    fields.boolean({"gated", "gated feed-forward (SwiGLU and the like)"}, model.gated);
    fields.integer({"vocabulary", "tokens in the vocabulary", true, 1, 100'000'000}, model.vocabulary);
    fields.integer({"sequence", "tokens in a sequence", false, 1, 100'000'000}, model.sequence);
    fields.boolean({"tied_embeddings", "share weights between the embedding and the LM head"}, model.tied_embeddings);
    fields.boolean({"rotary", "rotary position embedding"}, model.rotary);
    fields.boolean({"parallel_block", "attention and feed-forward run in parallel"}, model.parallel_block);
    fields.integer({"window", "sliding-window attention in tokens; 0: full", false, 0, 100'000'000}, model.window);
    fields.boolean({"dropout", "trained with dropout"}, model.dropout);
    fields.boolean({"biases", "attention's and dense feed-forward products have biases"}, model.biases);
    fields.when(model.window > 0 || model.linear.given(), "a window or linear attention", [&](Fields& same) {
        same.integer({"full_every",
                      "period of layers with full attention among layers with a window or linear attention; 0: none",
                      false, 0, 10000},
                     model.full_every);
    });
    fields.when(model.window > 0, "a window", [&](Fields& same) {
        same.boolean({"window_state",
                      "layers with the window stand for linear attention: they keep a state as large as its keys and "
                      "values in 16 bits"},
                     model.window_state);
    });
    fields.enumeration({"query_key_norm", "queries and keys are normed: each head, or all heads of a token as one"},
                       {"none", "heads", "whole"}, model.query_key_norm);
    fields.when(model.latent.kv_rank == 0, "attention with keys and values of each head", [&](Fields& same) {
        same.boolean({"output_gate", "gate that multiplies each value of attention's output"}, model.output_gate);
        model.attention.describe(same, {"attention", "keys that a token's attention reads"});
    });
    fields.section({"experts", "feed-forward layers that send each token to a few of many experts"},
                   [&](Fields& inner) { describe(inner, model.experts); });
    fields.section({"latent", "multi-head latent attention: one compressed key and value a token"},
                   [&](Fields& inner) { describe(inner, model.latent, model.head_dim); });
    fields.when(model.latent.kv_rank > 0, "latent attention (kv_rank above 0)", [&](Fields& same) {
        same.section({"indexer", "an indexer that chooses the keys of each query (sparse attention of DeepSeek-V3.2)"},
                     [&](Fields& inner) { describe(inner, model.indexer); });
    });
    fields.section({"linear", "layers of linear attention by the delta rule, all but every full_every-th"},
                   [&](Fields& inner) { describe(inner, model.linear); });
    fields.text({"pattern",
                 "kind of each layer, one letter per layer: M state space, - feed-forward, E experts, * attention; "
                 "empty: every "
                 "layer has attention and a feed-forward"},
                model.pattern);
    fields.when(model.pattern.find('M') != std::string::npos, "state-space layers (an M in the pattern)",
                [&](Fields& same) {
                    same.section({"state_space", "state-space layers (Mamba-2)"},
                                 [&](Fields& inner) { describe(inner, model.state_space); });
                });
    bool encoded = model.encoder.given();
    fields.optional({"encoder",
                     "an encoder of images or sound on the first pipeline stage, whose tokens take places in the "
                     "sequences of the language model"},
                    encoded, [&](Fields& inner) { describe(inner, model.encoder); });
}

void complete(ModelSpec& model) {
    model.form = model.attention.make();
    if (model.kv_heads == 0) {
        model.kv_heads = model.heads;
    }
    if (model.head_dim == 0 && model.heads > 0) {
        model.head_dim = model.hidden / model.heads;
    }
    if (model.ffn == 0) {
        model.ffn = 4 * model.hidden;
    }
    if (model.latent.kv_rank > 0) {
        model.rotary = model.latent.rotary > 0;  // latent attention says itself what has a position
    }
    if (model.linear.key_heads == 0) {
        model.linear.key_heads = model.linear.value_heads;
    }
    if (model.latent.value_dim == 0) {
        model.latent.value_dim = model.head_dim;
    }
    EncoderSpec& encoder = model.encoder;
    if (encoder.head_dim == 0 && encoder.heads > 0) {
        encoder.head_dim = encoder.hidden / encoder.heads;
    }
    if (encoder.ffn == 0) {
        encoder.ffn = 4 * encoder.hidden;
    }
}

}  // namespace orrery::model
