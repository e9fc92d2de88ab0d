#pragma once
// What a fitted kernel model sees of an operation: its work and its sizes along the axes of the fit.

#include "sim/base/namespaces.hpp"
#include "sim/device/operation.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace orrery::models {

/// Kernels with a fit of their own. Order matters: it indexes tables and names.
enum class KernelKind {
    gemm,            ///< axes: m, n, k
    experts,         ///< axes: rows of an active expert, active experts, ffn, hidden
    prefill,         ///< axes: queries, batch * heads, heads of a group, head dimension
    decode,          ///< axes: bytes of the cache read, batch * key heads, heads of a group, head dimension
    latent_prefill,  ///< axes: queries, batch * heads
    latent_decode,   ///< axes: keys, batch, heads
    norm,            ///< the rest have one axis: bytes
    activation,
    add,
    rotary,
    embedding,
    experts_skewed,      ///< rows by a power law; axes as those of experts
    attention_forward,   ///< of training, keys contiguous; axes as those of prefill
    attention_backward,  ///< likewise
    convolution,         ///< causal; one axis: bytes
    convolution_update,  ///< likewise
    delta_prefill,       ///< of gated delta nets; axes: queries, batch * heads of values
    delta_decode,        ///< axis: batch * heads of values
    kimi_prefill,        ///< of Kimi delta attention; axes as those of gated delta nets
    kimi_decode,         ///< likewise
    index_prefill,       ///< axes: queries, keys, batch
    index_decode,        ///< axes: keys, batch
    choice,              ///< axes: keys, rows
    sparse_prefill,      ///< latent attention to chosen keys; axes: batch * queries, heads
};
inline constexpr std::size_t kKernelKinds = 24;
[[nodiscard]] constexpr bool is_experts(KernelKind kind) {
    return kind == KernelKind::experts || kind == KernelKind::experts_skewed;
}
[[nodiscard]] const std::vector<std::string>& kernel_kind_names();
/// Attention whose points are prompts' or training's: four axes, queries first.
[[nodiscard]] constexpr bool is_prompt(KernelKind kind) {
    return kind == KernelKind::prefill || kind == KernelKind::attention_forward ||
           kind == KernelKind::attention_backward;
}
[[nodiscard]] constexpr bool is_attention(KernelKind kind) {
    return is_prompt(kind) || kind == KernelKind::decode || kind == KernelKind::latent_prefill ||
           kind == KernelKind::latent_decode;
}
/// Names of the axes of a kind, first the one that grows with the number of tokens.
[[nodiscard]] const std::vector<std::string>& kernel_axes(KernelKind kind);

/// Formats that are told apart; fp16 counts as bf16. `bf16_kv8`: attention over an 8-bit cache.
enum class KernelFormat { bf16, tf32, fp32, fp8, fp8_block, int8, fp4, bf16_int4, bf16_fp4, bf16_kv8 };
inline constexpr std::size_t kKernelFormats = 10;
[[nodiscard]] const std::vector<std::string>& kernel_format_names();

struct KernelPoint {
    KernelKind kind = KernelKind::gemm;
    KernelFormat format = KernelFormat::bf16;
    Precision precision = Precision::bf16;  ///< of the arithmetic
    double flops = 0;
    double bytes = 0;
    std::array<double, 4> sizes = {1, 1, 1, 1};  ///< along the axes; the rest 1
    /// One output matrix of the product, for tiles and waves; 0: no product.
    double rows = 0, columns = 0, depth = 0;
    double passing = 0;   ///< B of rows that fall on other devices and may be sorted and summed along
    bool spread = false;  ///< the first size is a mean of sizes that differ, as rows of experts do
};

/// The point of an operation, or nothing when no fit can price it (copies, batched products...).
[[nodiscard]] std::optional<KernelPoint> kernel_point(const Operation& operation);

}  // namespace orrery::models
