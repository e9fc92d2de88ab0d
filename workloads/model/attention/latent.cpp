// Multi-head latent attention (DeepSeek-AI, arXiv:2405.04434): one compressed key and value a token, shared by all heads.
//
// Training and prompts expand it to keys and values of each head; a decoding step attends in the compressed space, for which queries
// are multiplied by the matrix that would expand keys, and the result by the one that would expand values (absorbed). Both
// products are as large as the expansion of as many tokens, so that the list has the same product in either phase.
// The products that compress are whole on every tensor-parallel rank.
//
// With an indexer (DeepSeek-AI, arXiv:2512.02556) a query attends to the keys that it chose. Claims: its queries come of the compressed
// ones where there are such, its key and the weights of its heads of the residual stream; in serving it scores all keys in 8 bits and
// takes the largest. Prompts whose keys are no more than it chooses attend to all as expanded (SGLang's dense path), without scores;
// longer ones in the compressed space. A decoding step reads as many entries of the cache, as fast as if they lay together. All ranks do
// all of it, as in vLLM and SGLang. Training attends to as many keys as a window of that width has, and its scores are in 16 bits.

#include "workloads/model/attention_form.hpp"

#include <algorithm>

namespace orrery::model {

namespace {

// Heads that kernels of sparse prompts take at least; a rank with fewer fills up (FlashMLA's flash_mla_sparse_fwd takes 64 or 128: SGLang's
// modules of GLM-5 take as long with 8 heads as with 64 but for their projections).
constexpr double kSparseHeads = 64;

class Latent : public AttentionForm {
  public:
    [[nodiscard]] LayerOperations before(const LayerContext& at) const override {
        const ModelSpec& model = at.model;
        const auto hidden = static_cast<double>(model.hidden);
        const auto kv = static_cast<double>(model.latent.kv_rank);
        const auto q = static_cast<double>(model.latent.q_rank);
        const auto rotary = static_cast<double>(model.latent.rotary);
        const double heads = static_cast<double>(model.heads) / at.shard.tensor;
        const double query = model.query_width() / at.shard.tensor;
        LayerOperations out;
        LayerOperation compression =
            product_of("compression", LayerRole::input, at.rows / at.shard.rows, hidden, q + kv + rotary);
        out.push_back(compression);
        out.push_back(product_of("queries", LayerRole::input, at.rows, q > 0 ? q : hidden, query));
        out.back().kept = 0;  // with their positions, below
        out.push_back(product_of("keys and values of heads", LayerRole::input, at.rows, kv,
                                 heads * static_cast<double>(model.head_dim + model.latent.value_dim)));
        out.back().kept = heads * static_cast<double>(model.latent.value_dim);
        out.push_back({"norm of compressed vectors", LayerRole::inner_norm, at.rows / at.shard.rows, q + kv, q + kv});
        if (model.indexer.given()) {
            const auto dim = static_cast<double>(model.indexer.dim);
            const double width = static_cast<double>(model.indexer.heads) * dim;
            out.push_back(product_of("indexer's queries", LayerRole::input, at.rows, q > 0 ? q : hidden, width));
            out.push_back(product_of("indexer's key and weights", LayerRole::input, at.rows, hidden,
                                     dim + static_cast<double>(model.indexer.heads)));
            // Queries and the key are rotated, narrowed to 8 bits and, the key, cached.
            out.push_back(
                {"indexer's positions and cache", LayerRole::position, at.rows, width + dim, (width + dim) / 2, 2});
        }
        // In training queries and keys of every head are put together from their two parts.
        const double cached = at.phase == LayerPhase::training ? 0 : kv + rotary;
        const double joined = at.phase == LayerPhase::training ? 2 * query : query + cached;
        LayerOperation position{"positions and cache", LayerRole::position, at.rows, joined, joined, 2};
        position.cached = cached;
        position.kept = at.phase == LayerPhase::training ? joined : 0;
        out.push_back(position);
        return out;
    }

    [[nodiscard]] LayerOperations after(const LayerContext& at) const override {
        return {product_of("output of attention", LayerRole::output, at.rows, at.model.value_width() / at.shard.tensor,
                           static_cast<double>(at.model.hidden))};
    }

    [[nodiscard]] LayerOperations beside(const LayerContext& at, const CoreShape& shape) const override {
        const IndexerSpec& indexer = at.model.indexer;
        const bool trains = at.phase == LayerPhase::training;
        const auto topk = static_cast<double>(indexer.topk);
        const bool dense = shape.queries > 1 && shape.keys <= topk && !trains;
        if (!indexer.given() || dense) {
            return {};
        }
        LayerOperations out;
        const auto add = [&](const char* name, const Operation& kernel) {
            out.push_back({name, LayerRole::core, shape.sequences * shape.queries});
            out.back().kernel = kernel;
        };
        IndexScores scores{shape.sequences, shape.queries, shape.keys, static_cast<double>(indexer.heads),
                           static_cast<double>(indexer.dim)};
        scores.precision = trains ? Precision::bf16 : Precision::fp8;
        add("indexer's scores", scores);
        if (shape.backward) {
            add("gradient of the indexer's scores", scores);
        } else if (shape.keys > topk) {
            add("choice of keys", choice_of(shape.sequences, shape.queries, shape.keys, topk));
        }
        return out;
    }

    [[nodiscard]] Operation core(const LayerContext& at, const CoreShape& shape) const override {
        const ModelSpec& model = at.model;
        if (at.phase == LayerPhase::training) {
            // A head of the mean width of queries and values has the same products.
            Attention out;
            out.batch_heads = shape.sequences * shape.heads;
            out.queries = shape.queries;
            out.keys = shape.keys;
            out.head_dim = (model.query_width() + model.value_width()) / 2 / static_cast<double>(model.heads);
            out.causal = model.causal;
            out.window = model.indexer.given() ? static_cast<double>(model.indexer.topk)
                         : at.kind.windowed    ? static_cast<double>(model.window)
                                               : 0;
            out.backward = shape.backward;
            out.fused = shape.fused;
            out.trains = !shape.backward;
            return out;
        }
        LatentAttention out;
        out.chosen = static_cast<double>(model.indexer.topk);
        out.batch = shape.sequences;
        out.queries = shape.queries;
        out.keys = shape.keys;
        const bool sparse = shape.queries > 1 && out.chosen > 0 && shape.keys > out.chosen;
        out.heads = sparse ? std::max(shape.heads, kSparseHeads) : shape.heads;
        out.latent = static_cast<double>(model.latent.kv_rank);
        out.rotary = static_cast<double>(model.latent.rotary);
        out.head_dim = static_cast<double>(model.head_dim);
        out.cache = shape.cache;
        return out;
    }

    [[nodiscard]] double cached(const ModelSpec& model, LayerKind) const override {
        return static_cast<double>(model.latent.kv_rank + model.latent.rotary);
    }
};

const Latent kLatent;

}  // namespace

extern const AttentionForm& kLatentAttention;
const AttentionForm& kLatentAttention = kLatent;

}  // namespace orrery::model
