#pragma once
// Descriptions of models, which training and serving share.

#include "sim/config/fields.hpp"
#include "sim/config/policy.hpp"
#include "sim/device/operation.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace orrery::model {

/// Feed-forward layers in which a router sends each token to a few of many experts.
struct ExpertsSpec {
    std::int64_t count = 0;            ///< routed experts of a layer; 0: dense layers only
    std::int64_t topk = 0;             ///< experts that a token goes to
    std::int64_t ffn = 0;              ///< width of one expert
    std::int64_t shared = 0;           ///< width of the experts that see every token, together; 0: none
    std::int64_t dense_layers = 0;     ///< first layers, which keep the dense feed-forward
    Precision gate = Precision::bf16;  ///< of the router's product
    bool skewed = false;               ///< few experts are wanted much more than the others
    std::int64_t every = 1;            ///< the last of every so many layers has experts, the others do not
    std::int64_t groups = 0;           ///< that the experts are divided into, in order; 0: one
    std::int64_t group_topk = 0;       ///< groups that a token's experts are in; 0: any
};

/// Mean number of `holders` of equal parts of all experts that a token's choices fall on: without repetition, evenly over experts or,
/// where a router is limited to groups of experts, over those of the chosen groups.
[[nodiscard]] double holders_reached(const ExpertsSpec& experts, double holders);

/// What a layer is: attention and a feed-forward, or one of three alone, as the letters of ModelSpec::pattern say.
enum class LayerPart : std::uint8_t { whole, attention, feed_forward, state_space };

/// What tells layers of one model apart.
struct LayerKind {
    bool experts = false;  ///< its feed-forward has routed experts
    bool windowed =
        false;  ///< it attends through the window, or is linear attention: one of those that full_every leaves
    LayerPart part = LayerPart::whole;
    [[nodiscard]] constexpr std::size_t index() const {
        return part == LayerPart::whole ? (experts ? 1U : 0U) + (windowed ? 2U : 0U)
                                        : kWholes - 1 + static_cast<std::size_t>(part);
    }
    /// The kind of an index.
    [[nodiscard]] static constexpr LayerKind at(std::size_t index) {
        return index < kWholes ? LayerKind{index % 2 == 1, index >= 2, LayerPart::whole}
                               : LayerKind{false, false, static_cast<LayerPart>(index - (kWholes - 1))};
    }
    static constexpr std::size_t kWholes = 4;
    static constexpr std::size_t kCount = kWholes + 3;
};

/// Normalisation of queries and keys before attention. heads: of each head by itself; whole: over all heads of a token, so
/// that tensor-parallel ranks sum their squares first.
enum class QueryKeyNorm { none, heads, whole };

/// Multi-head latent attention: keys and values are cached as one compressed vector per token, shared by all heads.
struct LatentSpec {
    std::int64_t kv_rank = 0;    ///< width of the compressed vector; 0: ordinary attention
    std::int64_t q_rank = 0;     ///< width that queries are compressed to; 0: not compressed
    std::int64_t rotary = 64;    ///< width of the part with position, beside head_dim
    std::int64_t value_dim = 0;  ///< width of a head's values; 0: head_dim
};

/// An indexer beside latent attention, which chooses the keys of each query (DeepSeek-V3.2, arXiv:2512.02556): its light heads score the
/// one key that it caches of each token. Every tensor-parallel rank has all of it.
struct IndexerSpec {
    std::int64_t topk = 0;  ///< keys that a query attends to; 0: there is no indexer
    std::int64_t heads = 64;
    std::int64_t dim = 128;
    [[nodiscard]] bool given() const { return topk > 0; }
    /// B that it caches of a token: a key in 8 bits and its scale in 32.
    [[nodiscard]] double cached_bytes() const { return static_cast<double>(dim + 4); }
};

/// Which recurrence layers of linear attention have: the gated delta net of Qwen3-Next (arXiv:2412.06464), whose heads decay as a whole,
/// or Kimi delta attention (arXiv:2510.26692), whose channels do and whose gates are products of low rank.
enum class LinearKind : std::uint8_t { gated_delta, kimi_delta };

/// Layers of linear attention: a convolution, then the delta rule, which keeps a state of key_dim x value_dim for each head of values.
struct LinearSpec {
    LinearKind kind = LinearKind::gated_delta;
    std::int64_t key_heads = 0;    ///< 0: as value_heads
    std::int64_t value_heads = 0;  ///< 0: no layer is linear
    std::int64_t key_dim = 128;
    std::int64_t value_dim = 128;
    std::int64_t convolution = 4;       ///< tokens that the convolution before the scan covers
    std::int64_t chunk = 64;            ///< tokens that the scan takes together
    Precision state = Precision::fp32;  ///< of a state between passes

    [[nodiscard]] bool given() const { return value_heads > 0; }
    /// Width of all keys, of all values, and of what goes through the convolution.
    [[nodiscard]] double keys() const { return static_cast<double>(key_heads * key_dim); }
    [[nodiscard]] double values() const { return static_cast<double>(value_heads * value_dim); }
    [[nodiscard]] double convolved() const { return 2 * keys() + values(); }
    /// B of a sequence's state in a layer: those of the heads, and the convolution's last tokens in 16 bits.
    [[nodiscard]] double state_bytes() const {
        return bytes_of(state) * static_cast<double>(value_heads * key_dim * value_dim) +
               2 * convolved() * static_cast<double>(convolution - 1);
    }
};

/// State-space layers (Mamba-2, arXiv:2405.21060): a head keeps a state of `head_dim` x `state` values along the sequence. Heads of a
/// group share what writes it and what reads it, as query heads share keys. Sequences are worked on in chunks.
struct StateSpaceSpec {
    std::int64_t heads = 0;
    std::int64_t head_dim = 64;
    std::int64_t state = 128;
    std::int64_t groups = 1;
    std::int64_t convolution = 4;  ///< tokens that the convolution before the scan covers
    std::int64_t chunk = 256;      ///< tokens

    /// Width of what the scan makes of a token, and of what goes into a convolution and into the layer's first product's output.
    [[nodiscard]] double inner() const { return static_cast<double>(heads * head_dim); }
    [[nodiscard]] double convolved() const { return inner() + 2 * static_cast<double>(groups * state); }
    [[nodiscard]] double projected() const { return inner() + convolved() + static_cast<double>(heads); }
    /// FLOPs of the scan's products for a token, forward: what chunks add to states and read of them, and scores and sums inside a
    /// chunk, of which causality leaves half.
    [[nodiscard]] double scan_flops() const;
};

/// An encoder of images (or of sound: whatever a piece of it is, an image here) in front of a language model, in whose sequences its
/// tokens take places: transformer layers in which the tokens of an image attend to all of it, and a projector to the language
/// model's width (Megatron-Core's LLaVA, InternVL, Qwen-VL). encoder.cpp.
struct EncoderSpec {
    std::int64_t layers = 0;  ///< 0: there is no encoder
    std::int64_t hidden = 0;
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;  ///< 0: hidden / heads
    std::int64_t ffn = 0;       ///< 0: 4 x hidden
    bool gated = false;
    bool rotary = false;           ///< else a learned position for each token
    std::int64_t patch_width = 0;  ///< values of a patch, which the first product takes; 0: no such product
    std::int64_t tokens = 0;       ///< of an image
    std::int64_t dropped = 0;      ///< of them, that go no further: class tokens, which are no patches
    std::int64_t merged = 1;       ///< of the others, that become one of the language model
    double images = 1;             ///< of a sequence, in the mean
    std::int64_t projector = 0;    ///< width between the projector's two products; 0: it is one
    bool trained = true;           ///< else its weights stay as they are; the projector's never do
    bool recompute = false;        ///< its layers are computed again as the plan says of the language model's

    [[nodiscard]] bool given() const { return layers > 0; }
    /// Patches of an image, and tokens of the language model that it becomes.
    [[nodiscard]] double patches() const { return static_cast<double>(tokens - dropped); }
    [[nodiscard]] double places() const { return patches() / static_cast<double>(merged); }
    /// Width of what the projector takes.
    [[nodiscard]] double merged_width() const { return static_cast<double>(merged * hidden); }
    /// Weights of the first product and of positions, which tensor-parallel ranks have whole; of all layers; of a projector to this width.
    [[nodiscard]] double patch_parameters() const;
    [[nodiscard]] double layer_parameters() const;
    [[nodiscard]] double projector_parameters(std::int64_t to) const;
};

class AttentionForm;
[[nodiscard]] const PolicyTable<AttentionForm>& attention_table();

/// A transformer, or a hybrid of its parts and state-space layers.
struct ModelSpec {
    std::string name;
    std::int64_t layers = 0;
    std::int64_t hidden = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;  ///< 0: as heads (multi-head attention)
    std::int64_t head_dim = 0;  ///< 0: hidden / heads
    std::int64_t ffn = 0;       ///< 0: 4 x hidden
    bool gated = false;         ///< SwiGLU-like: two up projections
    std::int64_t vocabulary = 0;
    std::int64_t sequence = 2048;
    bool tied_embeddings = true;  ///< the LM head shares the embedding's weights
    bool rotary = false;
    bool parallel_block = false;  ///< attention and FFN read the same norm and share one all-reduce
    std::int64_t window = 0;      ///< sliding-window attention; 0: full
    std::int64_t full_every =
        0;  ///< every so many layers attend to everything, the others through the window or linearly; 0: none
    bool window_state = false;  ///< layers with the window keep a state as large as its keys and values instead
    bool output_gate = false;   ///< what attention adds up is multiplied by a gate of the token, a value each
    bool dropout = false;
    bool biases =
        false;  ///< of attention's and dense feed-forward products; like those of norms, their weights are not counted
    QueryKeyNorm query_key_norm = QueryKeyNorm::none;
    PolicyChoice<AttentionForm> attention{attention_table(), "standard"};
    std::shared_ptr<const AttentionForm> form;  ///< as chosen; complete() makes it
    ExpertsSpec experts;
    LatentSpec latent;
    IndexerSpec indexer;
    LinearSpec linear;
    /// A letter for each layer, as Hugging Face's hybrid_override_pattern: M state space, - feed-forward, * attention. Empty: all have
    /// attention and a feed-forward.
    std::string pattern;
    StateSpaceSpec state_space;
    EncoderSpec encoder;
    bool causal = true;  ///< a token attends to those before it; else to its whole sequence, as those of an encoder

    [[nodiscard]] bool hybrid() const { return !pattern.empty(); }
    [[nodiscard]] LayerPart part_of(std::int64_t layer) const;
    /// Layers that are this, alone or as a part.
    [[nodiscard]] std::int64_t layers_with(LayerPart part) const;
    /// Layers with routed experts; layers that attend through a window, or are linear; of them those that are linear.
    [[nodiscard]] std::int64_t expert_layers() const;
    [[nodiscard]] std::int64_t windowed_layers() const;
    [[nodiscard]] std::int64_t linear_layers() const { return linear.given() ? windowed_layers() : 0; }
    [[nodiscard]] bool is_linear(LayerKind kind) const { return kind.windowed && linear.given(); }
    [[nodiscard]] LayerKind kind_of(std::int64_t layer) const;
    /// Layers of a kind among `count` from `first` on.
    [[nodiscard]] std::int64_t layers_of(LayerKind kind, std::int64_t first, std::int64_t count) const;
    /// Weights of attention in a layer of this kind, and in the mean over layers.
    [[nodiscard]] double attention_parameters(LayerKind kind) const;
    [[nodiscard]] double attention_parameters() const;
    /// Weights of one expert layer's routed experts, and of all else in its feed-forward.
    [[nodiscard]] double routed_parameters() const;
    [[nodiscard]] double unrouted_parameters() const;
    /// Width of all queries of a token with their part with position, and of all values that attention adds up.
    [[nodiscard]] double query_width() const;
    [[nodiscard]] double value_width() const;
    /// Weights of one layer that is this, without experts; of them those of its products.
    [[nodiscard]] double parameters_of(LayerPart part) const;
    [[nodiscard]] double matrices_of(LayerPart part) const;
    /// Weights of all layers of a hybrid; of them those of products.
    [[nodiscard]] double hybrid_parameters() const;
    [[nodiscard]] double hybrid_matrices() const;
    /// Weights of the encoder and its projector; of them those that are trained.
    [[nodiscard]] double encoder_parameters() const;
    [[nodiscard]] double trained_encoder_parameters() const;
    /// Model FLOPs of the encoder and its projector for a sequence, forward and backward.
    [[nodiscard]] double encoder_flops() const;
    /// Weights of one dense layer; of the embedding (the LM head again when not tied).
    [[nodiscard]] double layer_parameters() const;
    [[nodiscard]] double embedding_parameters() const;
    [[nodiscard]] double parameters() const;
    [[nodiscard]] double kv_width() const { return static_cast<double>(kv_heads * head_dim); }
    [[nodiscard]] double q_width() const { return static_cast<double>(heads * head_dim); }
    /// Model FLOPs of one token, forward and backward: 6 x (matrix weights incl. LM head) + causal attention,
    /// no recomputation (the convention of current Megatron-Core). Of routed experts those that a token goes to. State-space layers add
    /// the products of their scan, as its chunks make them. With an encoder its own, shared by the tokens of a sequence.
    [[nodiscard]] double flops_per_token() const;
};

inline constexpr PresetKind kModelPresets{"model", "workloads/data/models"};

void describe(Fields& fields, ModelSpec& model);
/// Fills in what follows from other fields (head_dim, ffn, kv_heads).
void complete(ModelSpec& model);

/// Something wrong with a model, and the key inside it where it stands.
struct ModelProblem {
    std::string key, text;
};
/// All that is wrong with the form of attention, the pattern of a hybrid and its state-space layers.
[[nodiscard]] std::vector<ModelProblem> layer_problems(const ModelSpec& model);
/// All that is wrong with an encoder.
[[nodiscard]] std::vector<ModelProblem> encoder_problems(const ModelSpec& model);
/// The layers of an encoder as a model without tables, whose sequences are images.
[[nodiscard]] ModelSpec encoder_layers(const EncoderSpec& encoder);
void describe(Fields& fields, EncoderSpec& encoder);

}  // namespace orrery::model
