#pragma once
// Operations: what is computed or moved, independent of any machine. Never seconds.
//
// Each gives its FLOPs and the bytes that its algorithm must move through the main memory (each operand once). Sizes
// are doubles because analytic callers pass averages (tokens per expert); all are at least 0.

#include "sim/device/device_spec.hpp"

#include <cstdint>
#include <variant>

namespace orrery::device {

/// How low-precision operands are scaled: one factor a tensor or row, or one a block (128 x 128, or 16 and 32 values).
enum class Scaling { tensor, block };

/// Bytes that narrowing a value moves: it is read in 16 bits and written in 8.
inline constexpr double kQuantisedBytes = 3;

/// Of the time that a product's sums take at the memory's rate, read and written instead of written once, what it takes longer for them;
/// the rest goes on beside its arithmetic. Median of 48 pairs with 2,048 tokens on H100 and H200, in 16 and 8 bits with sums in 32
/// (validation/measured, 2026-11-27; 0.68 of 336 pairs with 1,024 to 16,384 tokens, and 0.72 of 120 with sums in 16 bits). Other
/// devices: as these.
inline constexpr double kSumsBesideProduct = 0.71;
/// Bytes of such sums beyond a result in 16 bits, a value: 4 read and written, or 2.
inline constexpr double kSumBytes = 6;
inline constexpr double kNarrowSumBytes = 2;

/// C[m,n] += A[m,k] B[k,n], `batch` times.
struct Gemm {
    double m = 1, n = 1, k = 1, batch = 1;
    Precision precision = Precision::bf16;
    /// Bytes that the epilogue moves beyond writing C once in 16 bits and that nothing hides (accumulation into fp32 gradients).
    double extra_bytes = 0;
    /// Weight-only quantisation: B in 4 or 8 bits, expanded to `precision` on the way into the tensor units.
    bool weight_only = false;
    Precision weights = Precision::int4;
    Scaling scaling = Scaling::tensor;
    /// Partial sums of 8-bit operands are promoted to registers of 32 bits along the way, as gradients want it.
    bool split_accumulator = false;
    /// Its activations come in 16 bits, and a kernel before narrows them: what that takes beyond moving kQuantisedBytes a value, which
    /// are counted with the kernel that it is fused into, or in `extra_bytes`.
    bool quantises = false;

    [[nodiscard]] double flops() const { return 2 * m * n * k * batch; }
    /// A, B and C once.
    [[nodiscard]] double bytes() const {
        const double b = weight_only ? bytes_of(weights) : bytes_of(precision);
        return batch * (bytes_of(precision) * m * k + b * k * n + 2 * m * n) + extra_bytes;
    }
};

/// One product [rows of the expert, k] x [k, n] for each expert, in one launch; rows = tokens * topk in all.
struct GroupedGemm {
    double tokens = 1, experts = 8, topk = 2, n = 1, k = 1;
    Precision precision = Precision::bf16;
    bool weight_only = false;
    Precision weights = Precision::int4;
    Scaling scaling = Scaling::tensor;

    [[nodiscard]] double rows() const { return tokens * topk; }
    /// Experts that get a token when tokens choose evenly and independently.
    [[nodiscard]] double active_experts() const;
    [[nodiscard]] double flops() const { return 2 * rows() * n * k; }
    [[nodiscard]] double bytes() const { return bytes(active_experts()); }
    /// The same with the number of active experts, which takes a power to compute.
    [[nodiscard]] double bytes(double active) const;
};

/// The feed-forward of a mixture of experts in fused kernels: permutation, both products, activation, combination.
/// `experts` counts those on this device and `tokens` those that arrive at it, each with `topk` choices among them.
struct FusedExperts {
    double tokens = 1, experts = 8, topk = 2, hidden = 4096, ffn = 14336;
    bool gated = true;
    Precision precision = Precision::bf16;
    bool weight_only = false;
    Precision weights = Precision::int4;
    Scaling scaling = Scaling::tensor;
    /// Further choices of the arriving tokens that fall on other devices: some libraries sort and sum those along.
    double topk_elsewhere = 0;
    /// Experts are taken in turn, as sweeps of kernels do, so that all get equal rows, and none two before each has one.
    bool in_turn = false;
    /// Few experts are wanted much more than the others, as a power law of exponent 1.2 has it ...
    bool skewed = false;
    /// ... over those of this many devices, among which a layer's experts are shared out.
    double devices = 1;

    [[nodiscard]] GroupedGemm up() const;
    [[nodiscard]] GroupedGemm down() const;
    [[nodiscard]] double active_experts() const;
    [[nodiscard]] double flops() const { return up().flops() + down().flops(); }
    [[nodiscard]] double bytes() const { return bytes(active_experts()); }
    [[nodiscard]] double bytes(double active) const { return up().bytes(active) + down().bytes(active); }
};

/// Gate, top-k, sort and permutation of tokens to experts and back (without the products).
struct ExpertRouting {
    double tokens = 1, experts = 8, topk = 2, hidden = 4096;
    [[nodiscard]] double flops() const { return 2 * tokens * experts * hidden; }
    /// Gate reads the tokens; the permutation reads and writes topk copies, and so does the combination.
    [[nodiscard]] double bytes() const { return 2 * tokens * hidden * (1 + 4 * topk) + 4 * tokens * experts; }
};

/// Generations of fused attention that training software runs: FlashAttention of 2022 (as in Triton), FlashAttention-2, and the
/// newest kernels of a device.
enum class FusedAttention { newest, flash2, flash1 };

/// Fused (flash) attention over `batch_heads` independent query heads; `queries` = 1 is a decode step.
struct Attention {
    double batch_heads = 1;  ///< sequences times query heads
    double queries = 1;      ///< query tokens of a sequence
    double keys = 1;         ///< key tokens that each sequence holds, the new ones included
    double head_dim = 128;
    bool causal = true;
    double window = 0;  ///< sliding window in tokens; 0: none
    bool backward = false;
    FusedAttention fused = FusedAttention::newest;
    double group = 1;                     ///< query heads that share a key head: 1 MHA, more GQA, heads: MQA
    Precision cache = Precision::bf16;    ///< of cached keys and values
    double block = 0;                     ///< tokens a page of the paged cache; 0: contiguous
    double shared_keys = 0, sharers = 1;  ///< of the keys, those that `sharers` sequences share and read once
    bool trains = false;                  ///< forward with a backward pass to come: keys contiguous, in no paged cache

    /// Fraction of the queries x keys rectangle that is computed.
    [[nodiscard]] double density() const;
    /// Two matrix products forward, five backward (scores are recomputed).
    [[nodiscard]] double flops() const {
        return (backward ? 10 : 4) * batch_heads * queries * keys * head_dim * density();
    }
    /// Keys whose entries are read: those in the window, whole pages, shared ones once.
    [[nodiscard]] double keys_read() const;
    [[nodiscard]] double bytes() const;
    [[nodiscard]] bool decodes() const { return queries <= 1 && !backward && !trains; }
};

/// Multi-head latent attention: a decode step attends in the compressed space (all heads share one latent key of
/// `latent + rotary` values a token); a prompt attends after expansion to `head_dim + rotary` and `head_dim` values.
struct LatentAttention {
    double batch = 1, queries = 1, keys = 1, heads = 128;
    double latent = 512, rotary = 64, head_dim = 128;
    Precision cache = Precision::bf16;
    /// Keys that an indexer chose for each query; 0: it attends to all. Queries of a prompt whose keys are more attend in the compressed
    /// space, each to as many, as kernels do not skip the places that the first ones leave empty.
    double chosen = 0;
    [[nodiscard]] bool decodes() const { return queries <= 1; }
    [[nodiscard]] bool sparse() const { return chosen > 0 && keys > chosen; }
    [[nodiscard]] double flops() const;
    [[nodiscard]] double bytes() const;
};

/// Scores of an indexer (DeepSeek-AI, "DeepSeek-V3.2", arXiv:2512.02556): each of `heads` light heads of a query against the one key of each
/// token before it, summed over heads with weights. Keys have a scale in 32 bits, and scores are written in 32 bits.
struct IndexScores {
    double batch = 1, queries = 1, keys = 1, heads = 64, dim = 128;
    Precision precision = Precision::fp8;
    [[nodiscard]] bool decodes() const { return queries <= 1; }
    /// Keys before a query, in the mean.
    [[nodiscard]] double seen() const { return keys - (queries - 1) / 2; }
    [[nodiscard]] double flops() const { return 2 * batch * queries * seen() * heads * dim; }
    [[nodiscard]] double bytes() const {
        return batch * (keys * (bytes_of(precision) * dim + 4) +
                        queries * (heads * (bytes_of(precision) * dim + 4) + 4 * seen()));
    }
};

/// The `chosen` largest of `keys` scores in 32 bits, the mean of `rows`; places in 32 bits are written.
struct TopChoice {
    double rows = 1, keys = 1, chosen = 2048;
    [[nodiscard]] double flops() const { return 0; }
    [[nodiscard]] double bytes() const { return 4 * rows * (keys + chosen); }
};

/// Of `queries` tokens of each of `batch` sequences that end at `keys`, those with more before them than are chosen.
[[nodiscard]] TopChoice choice_of(double batch, double queries, double keys, double chosen);

/// Linear attention by the delta rule: each head of values keeps a state of key_dim x value_dim along a sequence, in which a
/// token replaces what its key finds (Yang et al., "Parallelizing Linear Transformers with the Delta Rule", arXiv:2406.06484; with decays:
/// arXiv:2412.06464). Several tokens pass in chunks; one (a decoding step) reads and writes its states.
struct DeltaScan {
    double batch = 1, queries = 1;
    double key_heads = 16, value_heads = 32;
    double key_dim = 128, value_dim = 128;
    double chunk = 64;                  ///< tokens
    Precision state = Precision::fp32;  ///< of states between passes
    bool channels = false;  ///< each channel of a key decays by itself (Kimi delta attention), else a whole head
    bool trains = false;    ///< no states come in, and none go out
    bool backward = false;
    [[nodiscard]] bool decodes() const { return queries <= 1 && !trains && !backward; }
    [[nodiscard]] double flops() const;
    [[nodiscard]] double bytes() const;
};

/// What a memory-bound kernel does; decides which measured kernel prices it.
enum class StreamingKind {
    any,
    norm,
    activation,
    add,
    rotary,
    softmax,
    embedding,
    loss,
    optimizer,
    quantize,
    sampling,
    convolution,        ///< causal, over the last few tokens of a sequence
    convolution_update  ///< the same for one token, whose sequence keeps those before it
};

/// A kernel bound by memory bandwidth: norms, activations, softmax, optimizer steps.
struct Streaming {
    double bytes = 0;    ///< read plus written
    double kernels = 1;  ///< launches it takes
    StreamingKind kind = StreamingKind::any;
    [[nodiscard]] double flops() const { return 0; }
};

enum class CopyDirection { on_device, host_to_device, device_to_host };
/// Pinned memory for host copies; `bytes` are those of the source.
struct Copy {
    double bytes = 0;
    CopyDirection direction = CopyDirection::on_device;
};

/// `kernels` launches of an empty kernel: from the host one by one, or replayed as a graph.
struct Launch {
    double kernels = 1;
    bool graph = false;
};

using Operation = std::variant<Gemm, GroupedGemm, FusedExperts, ExpertRouting, Attention, LatentAttention, Streaming,
                               Copy, Launch, IndexScores, TopChoice, DeltaScan>;

/// Of its arithmetic; bf16 where it has none.
[[nodiscard]] Precision precision_of(const Operation& operation);

}  // namespace orrery::device
