#pragma once
// What a layer of a model computes in its forward pass on one device, whatever software runs it: a list of operations.
//
// Claims: a layer is one or two blocks. A block norms the residual stream, multiplies it into a core (attention, a state-space scan, an
// activation function or routed experts), multiplies the core's result back to the model's width, sums it over the ranks that
// share its matrices, and adds it to the residual stream. The list gives shapes, weights, launches and cached values; times belong
// to cost models, and what software fuses, casts, recomputes or overlaps belongs to training (pass_cost.hpp) and serving
// (step_cost.hpp). Each form of attention and of feed-forward is one file (attention/, feed_forward/).
// Scope: transformers and hybrids as ModelSpec describes them, in three phases: training and prompts expand latent attention's keys and
// values for every head; decoding steps read the cache, latent attention in its compressed space.
// Limits: routed experts are one operation, whose rows are a mean over experts; vocabulary tables and encoders are not layers.
// Validated by tests/workloads/layer_program_test.cpp: weights, FLOPs and cached bytes of all model presets against closed forms.

#include "sim/network/collective.hpp"
#include "workloads/model/model_spec.hpp"

#include <optional>
#include <vector>

namespace orrery::model {

enum class LayerPhase : std::uint8_t { training, prompt, decode };

/// What an operation is in its layer: software decides by it which kernel runs and what is fused.
enum class LayerRole : std::uint8_t {
    residual,    ///< adds a block's result to the residual stream
    norm,        ///< of the residual stream, before a block
    input,       ///< a product into the core
    inner_norm,  ///< of compressed vectors, or of queries and keys
    position,    ///< rotates queries and keys, and writes the cache
    core,        ///< attention, a scan or routed experts, as devices price it
    activation,  ///< the function between the products of a feed-forward
    output,      ///< a product out of the core
    router,      ///< a product that scores experts
    choice,      ///< elementwise work of the router
    sum,         ///< over the ranks that share the block's matrices
};

/// One operation on one device. Widths are values of a row, of 16 bits unless the software says otherwise.
struct LayerOperation {
    const char* name;
    LayerRole role;
    double rows = 0;      ///< tokens
    double in = 0;        ///< products: width of the operand; elementwise: values read
    double out = 0;       ///< products: width of the result; elementwise: values written; sums: values summed
    double launches = 1;  ///< kernels
    double weights = 0;   ///< values that this device holds for it
    double cached = 0;    ///< values of a row that stay in the cache
    double kept = 0;      ///< values of a row that its backward pass needs in 16 bits
    double operands = 0;  ///< and those that it needs as the product behind it takes them
    std::optional<Operation> kernel{};  ///< cores alone

    [[nodiscard]] bool product() const {
        return role == LayerRole::input || role == LayerRole::output || role == LayerRole::router;
    }
    /// FLOPs of products and cores.
    [[nodiscard]] double flops() const;
    /// Values that an elementwise operation reads and writes.
    [[nodiscard]] double values() const { return rows * (in + out); }
};

/// How devices share a layer. Degrees are at least 1.
struct LayerShard {
    double tensor = 1;     ///< devices that share the matrices and heads
    double key_ranks = 1;  ///< of them, those that hold different keys and values; the others repeat them
    double rows = 1;  ///< devices that share the rows of products whose weights each has whole (sequence parallelism)
};

/// Routed experts as one device sees them.
struct ExpertShard {
    double tokens = 0;     ///< that arrive at the device
    double held = 0;       ///< experts on the device
    double choices = 0;    ///< of an arriving token, among these
    double elsewhere = 0;  ///< of an arriving token, among experts of other devices, which are sorted along
    double width = 0;      ///< part of an expert's width
    double devices = 1;    ///< among which a layer's experts are divided
    double shared = 1;     ///< devices that share the experts that see every token
};
/// All experts on one device.
[[nodiscard]] ExpertShard whole_experts(const ModelSpec& model, double tokens);

struct LayerContext {
    const ModelSpec& model;
    LayerKind kind;
    LayerShard shard{};
    LayerPhase phase = LayerPhase::prompt;
    double rows = 1;  ///< tokens of the pass on this device
};

/// What attention sees: `heads` query heads of this device in each of `sequences`, whose `queries` new tokens look back on `keys` tokens,
/// themselves among them.
struct CoreShape {
    double sequences = 1;
    double heads = 1;
    double queries = 1;
    double keys = 1;
    bool backward = false;              ///< the backward pass of training
    Precision cache = Precision::bf16;  ///< of cached keys and values
    double page = 0;                    ///< tokens of a page of the cache; 0: contiguous
    FusedAttention fused = FusedAttention::newest;
};

using LayerOperations = std::vector<LayerOperation>;

/// Products, norms and positions before the core of attention (or of a scan), and products after it.
[[nodiscard]] LayerOperations before_attention(const LayerContext& at);
[[nodiscard]] LayerOperations after_attention(const LayerContext& at);
/// Kernels that go before the core of attention and see the same: an indexer's scores and its choice, a convolution. Of role `core`, each
/// with its kernel.
[[nodiscard]] LayerOperations beside_attention(const LayerContext& at, const CoreShape& shape);
/// The scan of linear attention on one of so many devices that share its heads, of one sequence.
[[nodiscard]] DeltaScan delta_scan(const LinearSpec& linear, double tensor);
/// What the core of a layer's attention is called.
[[nodiscard]] const char* core_name(const ModelSpec& model, LayerKind kind);
/// The core of attention. Precondition: the layer attends.
[[nodiscard]] Operation attention_core(const LayerContext& at, const CoreShape& shape);
/// A dense feed-forward of this width on the device: its products and the function between them.
[[nodiscard]] LayerOperations dense_feed_forward(const LayerContext& at, double width);
/// Router, routed experts and shared ones.
[[nodiscard]] LayerOperations routed_feed_forward(const LayerContext& at, const ExpertShard& experts);
/// Values of a token that the layer leaves in the cache on all devices that hold different ones; and what an indexer caches of it, in B.
[[nodiscard]] double cached_values(const ModelSpec& model, LayerKind kind);
[[nodiscard]] double indexed_bytes(const ModelSpec& model, LayerKind kind);

/// The whole layer in order, with norms, residual additions and sums over tensor ranks.
[[nodiscard]] LayerOperations layer_operations(const LayerContext& at, const CoreShape& shape,
                                               const ExpertShard& experts = {});

/// Weights of products in a list; of all operations.
[[nodiscard]] double product_weights(const LayerOperations& operations);
[[nodiscard]] double all_weights(const LayerOperations& operations);

}  // namespace orrery::model
