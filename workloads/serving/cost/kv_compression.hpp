#pragma once
// A cache of keys and values in fewer bits, with what repairs the loss: bytes per token, and the kernels' work.
//
// Claims: each key and value takes its bits; a group of them shares a scale and a zero point of 16 bits each; a share is kept whole
// beside them, a 16-bit number with a 32-bit index; and each head has low-rank factors of what is lost, a row of `rank` 16-bit
// numbers per token. What came last of a sequence stays in 16 bits until so much is there, and the other factor takes `rank` tokens
// in 16 bits per sequence: both are set aside for as many sequences as may run.
// Decoding attention that rebuilds in the kernel moves as much less as the cache is smaller, at the rate of the usual kernel, but takes
// no less than the vector units take to rebuild (two operations per value, four per head, token and rank). Rebuilt before it, the
// cache is read, written in 16 bits, and read by the usual kernel. New tokens are read for their scales, read and packed; with a
// share kept whole they are read once more; power iterations for the factors read them twice each.
// Scope: ordinary attention. Limits: prompts attend to their own tokens in 16 bits, and to cached ones once rebuilt; the factors' products
// with the values are as the vector units do them.
// Sources: Kang et al., "GEAR", arXiv:2403.05527 (quantised, low-rank and sparse parts, buffer); Liu et al., "KIVI",
// arXiv:2402.02750 (rebuilding in the kernel, groups).
// Validated by tests/workloads/serving_compression_test.cpp.

#include "sim/config/fields.hpp"
#include "sim/device/device_spec.hpp"

namespace orrery::serving {

/// Where attention finds 16-bit values again.
enum class Rebuild { in_kernel, before };

struct KvCompressionSpec {
    bool given = false;
    double key_bits = 4;
    double value_bits = 4;
    std::int64_t group = 64;      ///< values that share a scale and a zero point
    double sparse = 0;            ///< share of the values that are kept whole
    std::int64_t rank = 0;        ///< of the factors of each head
    std::int64_t iterations = 3;  ///< of the power method that finds them
    std::int64_t recent = 0;      ///< tokens of each sequence that stay in 16 bits
    Rebuild rebuild = Rebuild::in_kernel;
};
void describe(Fields& fields, KvCompressionSpec& spec);

/// Bytes of a key and a value of `width` numbers together, for one token and layer; in `precision` where nothing is compressed.
[[nodiscard]] double kv_bytes(const KvCompressionSpec& spec, Precision precision, double width, double head_dim);
/// Tokens in 16 bits that a sequence has beside its blocks.
[[nodiscard]] double kv_buffer_tokens(const KvCompressionSpec& spec);

}  // namespace orrery::serving
