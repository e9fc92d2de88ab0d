// Attention of Gemma 2 to 4 (huggingface/transformers, models/gemma2, gemma3n, gemma4, modular_*.py), in layers with a window and without.
//
// Claims: layers that see everything (full_every) may have heads of another width and fewer heads of keys, whose
// product may serve as keys and
// values; the last layers may take keys and values from others, and then neither make nor cache them (counted as a share of all
// layers). Results of attention and of the feed-forward are normed before the residual stream takes them. An embedding of each layer is
// gated by a product of the residual stream and multiplied back to it, both whole on every rank.
// Limits: the tables of these embeddings and the scales of norms are no weights here; layers that share caches are spread evenly over
// both kinds; engines keep pages of both kinds as large as those of the wider one.

#include "workloads/model/attention/standard.hpp"

#include <algorithm>

namespace orrery::model {

namespace {

class GemmaAttention final : public StandardAttention {
  public:
    struct Parameters {
        std::int64_t full_head_dim = 0;
        std::int64_t full_kv_heads = 0;
        bool keys_as_values = false;
        std::int64_t shared_layers = 0;
        bool block_norms = true;
        std::int64_t embedding = 0;
        void describe(Fields& fields) {
            fields.integer(
                {"full_head_dim", "width of a head in layers that see everything; 0: head_dim", false, 0, 100'000},
                full_head_dim);
            fields.integer(
                {"full_kv_heads", "key/value heads in layers that see everything; 0: kv_heads", false, 0, 100'000},
                full_kv_heads);
            fields.boolean({"keys_as_values", "layers that see everything make keys and values by one product"},
                           keys_as_values);
            fields.integer({"shared_layers", "last layers, which take keys and values from others", false, 0, 10000},
                           shared_layers);
            fields.boolean({"block_norms", "results of attention and feed-forward are normed"}, block_norms);
            fields.integer({"embedding", "width of an embedding of each layer; 0: none", false, 0, 100'000}, embedding);
        }
    };
    explicit GemmaAttention(const Parameters& parameters) : own_(parameters) {}

    [[nodiscard]] LayerOperations before(const LayerContext& at) const override {
        const ModelSpec& model = at.model;
        const double q = static_cast<double>(model.heads) * head_dim(at) / at.shard.tensor;
        const double kv = made(model) * kv_heads(model, at.kind) * head_dim(at) / key_ranks(at);
        LayerOperations out;
        const bool one = own_.keys_as_values && !at.kind.windowed;
        out.push_back(product_of("queries, keys and values", LayerRole::input, at.rows,
                                 static_cast<double>(model.hidden), q + (one ? 1 : 2) * kv));
        if (model.query_key_norm != QueryKeyNorm::none) {
            out.push_back({"norm of queries and keys", LayerRole::inner_norm, at.rows, q + kv, q + kv, 2});
        }
        const bool serves = at.phase != LayerPhase::training;
        const double cached = serves ? 2 * kv : 0;
        LayerOperation position{"positions and cache", LayerRole::position, at.rows, q + kv + cached, q + kv + cached};
        position.launches = serves ? 2 : 1;
        position.cached = cached;
        out.push_back(position);
        return out;
    }

    [[nodiscard]] LayerOperations after(const LayerContext& at) const override {
        const auto hidden = static_cast<double>(at.model.hidden);
        const double rows = at.rows / at.shard.rows;
        LayerOperations out;
        out.push_back(product_of("output of attention", LayerRole::output, at.rows,
                                 static_cast<double>(at.model.heads) * head_dim(at) / at.shard.tensor, hidden));
        if (own_.block_norms) {
            LayerOperation norm{
                "norms of both blocks' results", LayerRole::inner_norm, rows, 2 * hidden, 2 * hidden, 2};
            norm.kept = 2 * hidden;
            out.push_back(norm);
        }
        if (const auto width = static_cast<double>(own_.embedding); width > 0) {
            out.push_back(product_of("gate of the layer's embedding", LayerRole::input, rows, hidden, width));
            out.push_back({"product with the layer's embedding", LayerRole::activation, rows, 2 * width, width});
            out.push_back(product_of("output of the layer's embedding", LayerRole::output, rows, width, hidden));
            out.push_back({"norm of the layer's embedding", LayerRole::inner_norm, rows, hidden, hidden});
        }
        return out;
    }

    [[nodiscard]] Operation core(const LayerContext& at, const CoreShape& shape) const override {
        Attention out = attention(at, shape);
        out.head_dim = head_dim(at);
        if (at.phase != LayerPhase::training) {
            out.group =
                static_cast<double>(at.model.heads) / at.shard.tensor * key_ranks(at) / kv_heads(at.model, at.kind);
        }
        return out;
    }

    [[nodiscard]] double cached(const ModelSpec& model, LayerKind kind) const override {
        return 2 * made(model) * kv_heads(model, kind) * width(model, kind);
    }
    [[nodiscard]] bool by_kind() const override { return true; }
    [[nodiscard]] std::string problem(const ModelSpec& model) const override {
        const bool other = own_.full_head_dim > 0 || own_.full_kv_heads > 0 || own_.keys_as_values;
        if (other && model.window == 0) {
            return "attention: gemma tells layers that see everything from those with a window: it needs a window";
        }
        if (own_.full_kv_heads > 0 && model.heads % own_.full_kv_heads != 0) {
            return "attention: full_kv_heads of gemma must divide the model's heads";
        }
        return own_.shared_layers < std::max<std::int64_t>(1, model.layers)
                   ? ""
                   : "attention: gemma must leave layers whose keys and values the shared_layers take";
    }

  private:
    /// Of all layers, those that make their keys and values.
    [[nodiscard]] double made(const ModelSpec& model) const {
        return 1 - static_cast<double>(own_.shared_layers) / static_cast<double>(model.layers);
    }
    [[nodiscard]] double width(const ModelSpec& model, LayerKind kind) const {
        return static_cast<double>(!kind.windowed && own_.full_head_dim > 0 ? own_.full_head_dim : model.head_dim);
    }
    [[nodiscard]] double head_dim(const LayerContext& at) const { return width(at.model, at.kind); }
    [[nodiscard]] double kv_heads(const ModelSpec& model, LayerKind kind) const {
        return static_cast<double>(!kind.windowed && own_.full_kv_heads > 0 ? own_.full_kv_heads : model.kv_heads);
    }
    /// Ranks with different keys.
    [[nodiscard]] double key_ranks(const LayerContext& at) const {
        return at.kind.windowed || own_.full_kv_heads == 0
                   ? at.shard.key_ranks
                   : std::min(at.shard.tensor, static_cast<double>(own_.full_kv_heads));
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<AttentionForm> kGemmaAttention;
const PolicyRow<AttentionForm> kGemmaAttention = policy_row<AttentionForm, GemmaAttention>(
    "gemma", "heads of another width in layers that see everything, norms behind blocks, embeddings of layers (Gemma)");

}  // namespace orrery::model
