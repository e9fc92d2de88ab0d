// Kernels of a compressed cache (kv_compression.hpp).

#include "workloads/serving/cost/step_cost.hpp"

#include <algorithm>

namespace orrery::serving {

// `usual`: the same attention on a cache in 16 bits.
StepWork ModelStep::compressed(const Attention& attention, const StepWork& usual) const {
    const KvCompressionSpec& spec = m_.compression;
    // Prompts have their own tokens in 16 bits.
    const double keys = attention.decodes() ? attention.keys_read() : std::max(0.0, attention.keys - attention.queries);
    const double heads = attention.batch_heads / std::max(1.0, attention.group);
    const double values = heads * keys * attention.head_dim;  // of keys, and as many of values
    const double packed = kv_bytes(spec, Precision::bf16, values, attention.head_dim);
    const double whole = 2 * values * 2;
    const double operations =
        2 * 2 * values * (1 + spec.sparse) + 4 * static_cast<double>(spec.rank) * attention.batch_heads * keys;
    const double units = operations / m_.spec->flops_fp32.value;
    if (attention.decodes() && spec.rebuild == Rebuild::in_kernel) {
        StepWork out = usual;
        out.bytes = std::max(0.0, usual.bytes - whole) + packed;
        out.seconds = out.kernels =
            std::max(usual.bytes > 0 ? usual.seconds * std::min(1.0, out.bytes / usual.bytes) : usual.seconds, units);
        return out;
    }
    if (keys <= 0) {
        return usual;
    }
    Streaming kernel;
    kernel.bytes = packed + whole;
    kernel.kernels = 2;
    StepWork rebuilt = priced(kernel);
    rebuilt.seconds = rebuilt.kernels = std::max(rebuilt.seconds, units);
    return rebuilt + usual;
}

// What an iteration's new tokens take to be packed, over all layers.
StepWork ModelStep::compress(double tokens, bool prompts) const {
    const KvCompressionSpec& spec = m_.compression;
    const double width = m_.model.kv_width() / cache_ranks(m_.model, static_cast<std::int64_t>(t_));
    const double whole = 2 * 2 * width * tokens;
    const double passes = spec.rank > 0 ? 2 * static_cast<double>(spec.iterations) : 0;
    const double reads = 2 + (spec.sparse > 0 ? 1 : 0) + passes;
    Streaming kernel;
    kernel.bytes =
        reads * whole + kv_bytes(spec, Precision::bf16, width * tokens, static_cast<double>(m_.model.head_dim));
    // Decoded tokens wait until they are so many, prompts do not.
    const double together = prompts ? 1 : std::max(1.0, static_cast<double>(spec.recent));
    kernel.kernels = 2 * (1 + passes) / together;
    return share_ * static_cast<double>(m_.model.layers) * priced(kernel);
}

}  // namespace orrery::serving
