#pragma once
// What a training scenario says: the model, the plan, and the software that runs it. Immutable once read.

#include "sim/config/fields.hpp"
#include "sim/device/operation.hpp"

#include <string>

namespace orrery {

/// Feed-forward layers in which a router sends each token to a few of many experts.
struct ExpertsSpec {
    std::int64_t count = 0;            ///< routed experts of a layer; 0: dense layers only
    std::int64_t topk = 0;             ///< experts that a token goes to
    std::int64_t ffn = 0;              ///< width of one expert
    std::int64_t shared = 0;           ///< width of the experts that see every token, together; 0: none
    std::int64_t dense_layers = 0;     ///< first layers, which keep the dense feed-forward
    Precision gate = Precision::bf16;  ///< of the router's product
    bool skewed = false;               ///< few experts are wanted much more than the others
};

/// Normalisation of queries and keys before attention. heads: of each head by itself; whole: over all heads of a token, so
/// that tensor-parallel ranks sum their squares first.
enum class QueryKeyNorm { none, heads, whole };

/// Multi-head latent attention: keys and values are cached as one compressed vector a token, shared by all heads.
struct LatentSpec {
    std::int64_t kv_rank = 0;    ///< width of the compressed vector; 0: ordinary attention
    std::int64_t q_rank = 0;     ///< width that queries are compressed to; 0: not compressed
    std::int64_t rotary = 64;    ///< width of the part with position, beside head_dim
    std::int64_t value_dim = 0;  ///< width of a head's values; 0: head_dim
};

/// A transformer.
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
    std::int64_t full_every = 0;  ///< every so many layers attend to everything in spite of the window; 0: none
    bool dropout = false;
    QueryKeyNorm query_key_norm = QueryKeyNorm::none;
    ExpertsSpec experts;
    LatentSpec latent;

    /// Layers with routed experts; their share that attends through a window.
    [[nodiscard]] std::int64_t expert_layers() const { return experts.count > 0 ? layers - experts.dense_layers : 0; }
    [[nodiscard]] std::int64_t windowed_layers() const;
    /// Weights of attention, of one expert layer's routed experts, and of all else in its feed-forward.
    [[nodiscard]] double attention_parameters() const;
    [[nodiscard]] double routed_parameters() const;
    [[nodiscard]] double unrouted_parameters() const;
    /// Weights of one dense layer; of the embedding (the LM head again when not tied).
    [[nodiscard]] double layer_parameters() const;
    [[nodiscard]] double embedding_parameters() const;
    [[nodiscard]] double parameters() const;
    [[nodiscard]] double kv_width() const { return static_cast<double>(kv_heads * head_dim); }
    [[nodiscard]] double q_width() const { return static_cast<double>(heads * head_dim); }
    /// Model FLOPs of one token, forward and backward: 6 x (matrix weights incl. LM head) + causal attention,
    /// no recomputation (the convention of current Megatron-Core).
    [[nodiscard]] double flops_per_token() const;
};

enum class ScheduleKind { gpipe, one_f_one_b, interleaved };
/// selective: the attention core; half: half of each layer's products (every second one); full: whole layers.
enum class Recompute { none, selective, half, full };
/// flash: the newest fused kernel of the device; flash2: FlashAttention-2.
enum class AttentionKernel { unfused, flash, flash2 };
enum class TensorOverlap { none, backward, full };
/// fused: one kernel a norm, rotary embedding or gate; eager: one for each elementwise operation in them.
enum class Fusion { fused, eager };

struct PlanSpec {
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::int64_t data = 1;
    std::int64_t context = 1;
    std::int64_t micro_batch = 1;
    std::int64_t global_batch = 0;
    ScheduleKind schedule = ScheduleKind::one_f_one_b;
    std::int64_t chunks = 1;  ///< model chunks a stage (interleaved)
    Recompute recompute = Recompute::none;
    bool sequence_parallel = false;
    std::int64_t zero = 0;   ///< ZeRO stage; 3 is FSDP
    std::int64_t shard = 0;  ///< ranks that share the weights under ZeRO-3; 0: all of the data-parallel group
    Precision precision = Precision::bf16;
    AttentionKernel attention = AttentionKernel::flash;
    Fusion fusion = Fusion::fused;
    Precision gradient_precision = Precision::bf16;  ///< of gradients on the wire
    bool gather_given = false;                       ///< `gather_precision` was given
    Precision gather_precision = Precision::bf16;    ///< of activations and their gradients that tensor ranks gather
    TensorOverlap overlap_tensor = TensorOverlap::none;
    bool overlap_pipeline = false;
    bool overlap_data = false;
    bool overlap_parameters = false;  ///< all-gather of ZeRO-1 weights behind the first forward passes

    [[nodiscard]] std::int64_t ranks() const { return tensor * pipeline * data * context; }
    [[nodiscard]] std::int64_t micro_batches() const { return global_batch / (micro_batch * data); }
};

/// What a generation of training software adds to its kernels. The three fitted values are the only constants in Orrery
/// that were fitted on training runs; see validation/training/README.md for the points they were fitted on.
struct SoftwareSpec {
    std::string name;
    Sourced<double> kernel_slowdown;          ///< kernels in a training step over the same kernels in a microbenchmark
    Sourced<double> layer_overhead;           ///< s a layer and pass: small kernels and gaps that are not modelled
    Sourced<double> step_overhead;            ///< s an iteration: data loading, gradient clipping, logging
    bool fused_gradient_accumulation = true;  ///< weight gradients are added in the GEMM's epilogue
    bool scatter_gather_pipeline = true;      ///< each tensor-parallel rank sends its share between stages
    std::int64_t gathers_per_layer = 1;       ///< collectives that ZeRO-3 gathers a layer's weights with
    std::int64_t reductions_per_layer = 1;    ///< collectives that ZeRO-3 reduces a layer's gradients with
    bool regathers = false;  ///< full recomputation gathers weights that its backward pass gathers again
    /// s of the host for each rank's piece of a collective over a list of tensors, one a rank; 0: over flat buffers.
    Sourced<double> piece_time;
    Sourced<double> reserved_memory;  ///< B a GPU: context, library buffers, fragmentation
};

inline constexpr PresetKind kModelPresets{"model", "workloads/data/models"};
inline constexpr PresetKind kSoftwarePresets{"software", "workloads/data/software"};

void describe(Fields& fields, ModelSpec& model);
void describe(Fields& fields, PlanSpec& plan);
void describe(Fields& fields, SoftwareSpec& software);

/// Fills in what follows from other fields (head_dim, ffn, kv_heads).
void complete(ModelSpec& model);
/// Checks that the plan fits the model and the cluster. Throws ConfigError (at `mark`) for what can never be right and
/// InfeasibleError for a plan that does not divide.
void check(const ModelSpec& model, const PlanSpec& plan, std::uint32_t gpus, const Mark& mark);

}  // namespace orrery
