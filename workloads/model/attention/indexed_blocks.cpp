// Attention to the blocks of keys that an indexer chose (MiniMax-M3's sparse attention).
//
// Claims: an indexer with a few heads scores the one key that it caches of each token, beside the layer's keys and values; a block's score is
// its best key's, and each of its heads chooses blocks for the query heads of its part. A query attends to no more keys than those blocks
// hold, as fast as through a window of as many. Limits: every layer has an indexer; its products are in 16 bits, and of its key each
// tensor-parallel rank has all.

#include "workloads/model/attention/standard.hpp"

#include <algorithm>

namespace orrery::model {

namespace {

class IndexedBlocks final : public StandardAttention {
  public:
    struct Parameters {
        std::int64_t block = 128;
        std::int64_t blocks = 16;
        std::int64_t heads = 4;
        std::int64_t dim = 128;
        void describe(Fields& fields) {
            fields.integer({"block", "tokens of a block of keys", false, 1, 1'000'000}, block);
            fields.integer({"blocks", "blocks that a query attends to", false, 1, 1'000'000}, blocks);
            fields.integer({"heads", "heads of the indexer", false, 1, 100'000}, heads);
            fields.integer({"dim", "width of the indexer's heads and of its key", false, 1, 100'000}, dim);
        }
    };
    explicit IndexedBlocks(const Parameters& parameters)
        : block_(static_cast<double>(parameters.block)),
          blocks_(static_cast<double>(parameters.blocks)),
          heads_(static_cast<double>(parameters.heads)),
          dim_(static_cast<double>(parameters.dim)) {}

    [[nodiscard]] LayerOperations before(const LayerContext& at) const override {
        LayerOperations out = StandardAttention::before(at);
        const double width = own_heads(at) * dim_ + dim_;
        out.push_back(product_of("indexer's queries and key", LayerRole::input, at.rows,
                                 static_cast<double>(at.model.hidden), width));
        LayerOperation position{"indexer's positions and cache", LayerRole::position, at.rows, width, width};
        position.cached = at.phase == LayerPhase::training ? 0 : dim_;
        out.push_back(position);
        return out;
    }

    [[nodiscard]] LayerOperations beside(const LayerContext& at, const CoreShape& shape) const override {
        const bool dense = shape.queries > 1 && shape.keys <= block_ * blocks_;
        if (dense && at.phase != LayerPhase::training) {
            return {};
        }
        const double rows = shape.sequences * shape.queries;
        LayerOperations out;
        const auto add = [&](const char* name, const Operation& kernel) {
            out.push_back({name, LayerRole::core, rows});
            out.back().kernel = kernel;
        };
        add("indexer's scores",
            IndexScores{shape.sequences, shape.queries, shape.keys, own_heads(at), dim_, Precision::bf16});
        if (!shape.backward && shape.keys > block_ * blocks_) {
            add("choice of blocks", TopChoice{rows * own_heads(at), shape.keys / block_, blocks_});
        }
        return out;
    }

    [[nodiscard]] Operation core(const LayerContext& at, const CoreShape& shape) const override {
        Attention out = attention(at, shape);
        const double most = block_ * blocks_;
        if (out.queries <= 1) {
            out.keys = std::min(out.keys, most);
        } else if (most < out.keys) {
            out.window = most;
        }
        return out;
    }
    [[nodiscard]] double cached(const ModelSpec& model, LayerKind kind) const override {
        return StandardAttention::cached(model, kind) + dim_;
    }
    [[nodiscard]] std::string problem(const ModelSpec& model) const override {
        return model.window == 0 ? "" : "attention: indexed-blocks chooses among all keys, and this model has a window";
    }

  private:
    /// Heads of the indexer go with heads of keys.
    [[nodiscard]] double own_heads(const LayerContext& at) const {
        return heads_ / std::min(heads_, at.shard.key_ranks);
    }

    double block_, blocks_, heads_, dim_;
};

}  // namespace

extern const PolicyRow<AttentionForm> kIndexedBlocks;
const PolicyRow<AttentionForm> kIndexedBlocks =
    policy_row<AttentionForm, IndexedBlocks>("indexed-blocks", "blocks of keys that an indexer chooses for each query");

}  // namespace orrery::model
