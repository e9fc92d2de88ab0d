#pragma once
// Operations: what is computed or moved, independent of any machine. Never seconds.

#include "sim/device/device_spec.hpp"

#include <cstdint>

namespace orrery {

/// C[m,n] += A[m,k] B[k,n], `batch` times.
struct Gemm {
    double m = 1, n = 1, k = 1, batch = 1;
    Precision precision = Precision::bf16;
    /// Bytes that the epilogue moves beyond writing C once in 16 bits (accumulation into fp32 gradients).
    double extra_bytes = 0;

    [[nodiscard]] double flops() const { return 2 * m * n * k * batch; }
    /// A, B and C once.
    [[nodiscard]] double bytes() const {
        return batch * (bytes_of(precision) * (m * k + k * n) + 2 * m * n) + extra_bytes;
    }
};

/// Fused (flash) attention over `batch_heads` independent heads.
struct Attention {
    double batch_heads = 1;
    double queries = 1;  ///< query tokens
    double keys = 1;     ///< key tokens that each query could see
    double head_dim = 128;
    bool causal = true;
    double window = 0;  ///< sliding window in tokens; 0: none
    bool backward = false;
    bool flash2 = false;  ///< FlashAttention-2, which Hopper's newer kernels outrun

    /// Fraction of the queries x keys rectangle that is computed.
    [[nodiscard]] double density() const;
    /// Two matrix products forward, five backward (scores are recomputed).
    [[nodiscard]] double flops() const {
        return (backward ? 10 : 4) * batch_heads * queries * keys * head_dim * density();
    }
};

/// A kernel bound by memory bandwidth: norms, activations, softmax, optimizer steps, copies.
struct Streaming {
    double bytes = 0;    ///< read plus written
    double kernels = 1;  ///< launches it takes
};

}  // namespace orrery
