// Attention to compressed keys (DeepSeek-AI, "DeepSeek-V4", arXiv:2606.19348): one vector of head_dim serves as key and
// value of all heads, each
// token attends to those of its window and to compressed ones, of which there is one for every few tokens.
//
// Claims: the model's full_every sorts its layers. Those that it names (CSA) have a compressed key for every `ratio`
// tokens, made of twice as
// many, among which an indexer chooses `topk` for a query; its keys are compressed likewise. Those that it leaves to the window (HCA) have
// one for every `heavy_ratio` tokens, and attend to all of them. Queries come of a compressed vector, outputs pass a
// product of low rank within
// each of `groups` groups of heads before the last. Keys, compressors and indexer are whole on every tensor-parallel
// rank; heads are shared.
// Kernels of serving fill up to 64 heads (FlashMLA), and compute every place that the last query of a prompt has. Four queries see the same
// compressed keys: scores of a prompt are those of four prompts of a quarter of the queries over a quarter of the keys.
// Its small kernels are its own, of role `choice`: none of a library's norms and rotations.
// A cache in 8 bits has the part with position in 16 and a scale for each 64 values, in whole 8 B (584 B of 512
// values). However long it is,
// a sequence keeps its window and what its compressors have not taken in yet, in 32 bits. Hyper-connections of both blocks stand with
// attention (`streams`).
// Limits: layers with the window alone (2 of 43 in Flash) count as HCA; training attends as through a window in which queries see as much;
// sinks of heads take no time; where prompts are computed apart (engine.prefill), windows are not sent with the cache.

#include "workloads/model/attention/hyper_connections.hpp"
#include "workloads/model/attention_form.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::model {

namespace {

constexpr double kFilledHeads = 64;
constexpr double kOverlap = 2;  // a compressed key of CSA is made of so many times its tokens
constexpr double kSummed = 2;   // a compressor makes a value and a weight
constexpr double kLong = 4;     // B of a number that waits for a compressor
constexpr double kScaled = 64;  // values that share a scale in an 8-bit cache
constexpr double kAligned = 8;  // B
constexpr double kIndexScale = 4;

class CompressedAttention final : public AttentionForm {
  public:
    struct Parameters {
        std::int64_t q_rank = 1024;
        std::int64_t rotary = 64;
        std::int64_t out_rank = 1024;
        std::int64_t groups = 8;
        std::int64_t ratio = 4;
        std::int64_t heavy_ratio = 128;
        std::int64_t topk = 512;
        std::int64_t heads = 64;
        std::int64_t dim = 128;
        std::int64_t streams = 4;
        void describe(Fields& fields) {
            fields.integer({"q_rank", "width that queries are compressed to", false, 1, 100'000}, q_rank);
            fields.integer({"rotary", "width of a head's part with position, inside head_dim", false, 0, 100'000},
                           rotary);
            fields.integer(
                {"out_rank", "width that the output of a group of heads is compressed to", false, 1, 100'000},
                out_rank);
            fields.integer({"groups", "groups of heads that are compressed behind attention", false, 1, 100'000},
                           groups);
            fields.integer(
                {"ratio", "tokens of a compressed key where an indexer chooses among them", false, 1, 1'000'000},
                ratio);
            fields.integer(
                {"heavy_ratio", "tokens of a compressed key in layers that attend to all of them", false, 1, 1'000'000},
                heavy_ratio);
            fields.integer({"topk", "compressed keys that the indexer chooses for a query", false, 1, 100'000'000},
                           topk);
            fields.integer({"heads", "heads of the indexer", false, 1, 100'000}, heads);
            fields.integer({"dim", "width of the indexer's heads and of its key", false, 1, 100'000}, dim);
            fields.integer({"streams", "residual streams of hyper-connections; 1: there are none", false, 1, 1000},
                           streams);
        }
    };
    explicit CompressedAttention(const Parameters& parameters)
        : own_(parameters), streams_(static_cast<double>(parameters.streams)) {}

    [[nodiscard]] LayerOperations before(const LayerContext& at) const override {
        const auto hidden = static_cast<double>(at.model.hidden);
        const auto d = static_cast<double>(at.model.head_dim);
        const auto q = static_cast<double>(own_.q_rank);
        const double queries = at.model.q_width() / at.shard.tensor;
        const double sharded = at.rows / at.shard.rows;
        LayerOperations out = before_blocks(at, streams_, kBlocks);
        out.push_back(product_of("compression", LayerRole::input, sharded, hidden, q + d));
        out.push_back(product_of("queries", LayerRole::input, at.rows, q, queries));
        out.back().kept = 0;  // with their norm and positions, below
        const double compressed = kSummed * overlap(at.kind) * d;
        LayerOperation keys = product_of("compressed keys", LayerRole::input, sharded, hidden, compressed);
        keys.weights +=
            ratio(at.kind) * compressed / kSummed;  // a weight for each place, added to those of the product
        out.push_back(keys);
        out.push_back({"norm of compressed vectors", LayerRole::choice, sharded, q + d, q + d});
        out.push_back({"sums to compressed keys", LayerRole::choice, sharded, compressed, d / ratio(at.kind)});
        if (indexes(at.kind)) {
            const auto dim = static_cast<double>(own_.dim);
            const auto heads = static_cast<double>(own_.heads);
            const double made = kSummed * kOverlap * dim;
            out.push_back(product_of("indexer's queries", LayerRole::input, at.rows, q, heads * dim));
            LayerOperation index =
                product_of("indexer's keys and weights", LayerRole::input, at.rows, hidden, made + heads);
            index.weights += ratio(at.kind) * made / kSummed;
            out.push_back(index);
            // Queries are rotated and narrowed to 8 bits; so are keys, which are summed before.
            out.push_back({"indexer's positions and cache", LayerRole::choice, at.rows, heads * dim + made,
                           (heads * dim + dim / ratio(at.kind)) / 2, 2});
        }
        const double cached = at.phase == LayerPhase::training ? 0 : this->cached(at.model, at.kind);
        LayerOperation position{"norm of queries, positions and cache", LayerRole::choice, at.rows, queries + d,
                                queries + d};
        position.cached = cached;
        position.kept = at.phase == LayerPhase::training ? queries + d : 0;
        out.push_back(position);
        return out;
    }

    [[nodiscard]] LayerOperations after(const LayerContext& at) const override {
        const double width = at.model.q_width() / at.shard.tensor;
        const double ranks = static_cast<double>(own_.groups * own_.out_rank) / at.shard.tensor;
        LayerOperations out;
        // Outputs are rotated back.
        out.push_back({"positions of outputs", LayerRole::choice, at.rows, width, width});
        out.push_back(product_of("output of a group of heads", LayerRole::output, at.rows,
                                 at.model.q_width() / static_cast<double>(own_.groups), ranks));
        out.push_back(
            product_of("output of attention", LayerRole::output, at.rows, ranks, static_cast<double>(at.model.hidden)));
        const LayerOperations streams = behind_blocks(at, streams_, kBlocks);
        out.insert(out.end(), streams.begin(), streams.end());
        return out;
    }

    [[nodiscard]] LayerOperations beside(const LayerContext& at, const CoreShape& shape) const override {
        const bool trains = at.phase == LayerPhase::training;
        const double keys = std::floor(shape.keys / ratio(at.kind));
        if (!indexes(at.kind) || keys < 1) {
            return {};
        }
        LayerOperations out;
        const auto add = [&](const char* name, const Operation& kernel) {
            out.push_back({name, LayerRole::core, shape.sequences * shape.queries});
            out.back().kernel = kernel;
        };
        const double share = shape.queries > 1 ? std::min(shape.queries, ratio(at.kind)) : 1;
        const double queries = shape.queries / share;
        const auto topk = static_cast<double>(own_.topk);
        IndexScores scores{share * shape.sequences, queries, std::max(keys, queries), static_cast<double>(own_.heads),
                           static_cast<double>(own_.dim)};
        scores.precision = trains ? Precision::bf16 : Precision::fp8;
        add("indexer's scores", scores);
        if (shape.backward) {
            add("gradient of the indexer's scores", scores);
        } else if (keys > topk) {
            add("choice of keys", choice_of(scores.batch, queries, scores.keys, topk));
        }
        return out;
    }

    [[nodiscard]] Operation core(const LayerContext& at, const CoreShape& shape) const override {
        const auto d = static_cast<double>(at.model.head_dim);
        if (at.phase == LayerPhase::training) {
            Attention out;
            out.batch_heads = shape.sequences * shape.heads;
            out.queries = shape.queries;
            out.keys = shape.keys;
            out.head_dim = d;
            out.causal = at.model.causal;
            out.window = equal_window(shape.keys, seen_by_mean(at, shape.keys));
            out.group = static_cast<double>(at.model.heads) / at.shard.tensor;
            out.backward = shape.backward;
            out.fused = shape.fused;
            out.trains = !shape.backward;
            return out;
        }
        LatentAttention out;
        out.batch = shape.sequences;
        out.queries = shape.queries;
        out.chosen = places(at, shape.keys);
        out.keys = std::max(shape.keys, out.chosen + 1);  // the window and compressed keys beside it
        out.heads = std::max(shape.heads, kFilledHeads);
        out.latent = out.head_dim = d;
        out.rotary = 0;  // inside
        out.cache = shape.cache;
        return out;
    }

    [[nodiscard]] double cached(const ModelSpec& model, LayerKind kind) const override {
        return static_cast<double>(model.head_dim) / ratio(kind);
    }
    [[nodiscard]] double cached_bytes(const ModelSpec& model, LayerKind kind, Precision cache) const override {
        const double index = indexes(kind) ? static_cast<double>(own_.dim) + kIndexScale : 0;
        return (entry_bytes(model, cache) + index) / ratio(kind);
    }
    [[nodiscard]] double sequence_bytes(const ModelSpec& model, LayerKind kind, Precision cache,
                                        double) const override {
        const double width = static_cast<double>(model.head_dim) + (indexes(kind) ? static_cast<double>(own_.dim) : 0);
        const double waiting = overlap(kind) * ratio(kind) * kSummed * overlap(kind) * width * kLong;
        return static_cast<double>(model.window) * entry_bytes(model, cache) + waiting;
    }
    [[nodiscard]] bool by_kind() const override { return true; }
    [[nodiscard]] const char* kind_name(LayerKind kind) const override {
        return indexes(kind) ? "compressed keys that an indexer chooses" : "all heavily compressed keys";
    }
    [[nodiscard]] std::string problem(const ModelSpec& model) const override {
        if (model.window <= 0 || model.full_every < 2) {
            return "attention: compressed needs a window, and full_every of at least 2 for the layers with an indexer";
        }
        if (model.kv_heads != 1) {
            return "attention: compressed has one key for all heads: kv_heads: 1";
        }
        if (model.heads % own_.groups != 0) {
            return "attention: compressed shares the model's heads out over its groups, which must divide them";
        }
        if (model.head_dim > 0 && own_.rotary > model.head_dim) {
            return "attention: compressed has its rotary part inside head_dim, which is smaller";
        }
        return "";
    }

  private:
    static constexpr double kBlocks = 2;  // of a layer: attention and feed-forward

    [[nodiscard]] static bool indexes(LayerKind kind) { return !kind.windowed; }
    [[nodiscard]] static double overlap(LayerKind kind) { return indexes(kind) ? kOverlap : 1; }
    [[nodiscard]] double ratio(LayerKind kind) const {
        return static_cast<double>(indexes(kind) ? own_.ratio : own_.heavy_ratio);
    }
    /// Entries of the cache that a query attends to behind so many keys.
    [[nodiscard]] double places(const LayerContext& at, double keys) const {
        const double compressed = std::floor(keys / ratio(at.kind));
        return std::min(keys, static_cast<double>(at.model.window)) +
               (indexes(at.kind) ? std::min(compressed, static_cast<double>(own_.topk)) : compressed);
    }
    /// The same in the mean over a sequence.
    [[nodiscard]] double seen_by_mean(const LayerContext& at, double keys) const {
        const auto up_to = [&](double most, double each) {  // min(most, i / each) for i below keys
            const double ramp = std::min(keys, most * each);
            return (ramp * ramp / (2 * each) + (keys - ramp) * most) / keys;
        };
        const double compressed = indexes(at.kind) ? static_cast<double>(own_.topk) : keys;
        return up_to(static_cast<double>(at.model.window), 1) + up_to(compressed, ratio(at.kind));
    }
    /// The window through which queries see so many in the mean.
    [[nodiscard]] static double equal_window(double keys, double seen) {
        return seen >= keys / 2 ? keys : keys - std::sqrt(keys * keys - 2 * keys * seen);
    }
    [[nodiscard]] double entry_bytes(const ModelSpec& model, Precision cache) const {
        const auto d = static_cast<double>(model.head_dim);
        if (bytes_of(cache) >= 2) {
            return bytes_of(cache) * d;
        }
        const double plain = d - static_cast<double>(own_.rotary);
        const double scales = std::ceil(plain / kScaled / kAligned) * kAligned;
        return plain * bytes_of(cache) + 2 * static_cast<double>(own_.rotary) + scales;
    }

    Parameters own_;
    double streams_;
};

}  // namespace

extern const PolicyRow<AttentionForm> kCompressedAttention;
const PolicyRow<AttentionForm> kCompressedAttention = policy_row<AttentionForm, CompressedAttention>(
    "compressed", "a window and compressed keys, all of them or those that an indexer chooses, by layer (DeepSeek-V4)");

}  // namespace orrery::model
