#include "models/roofline.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {

namespace {
constexpr double kPeakInsideTile = 0.92;
constexpr double kTileM = 128;
constexpr double kTileN = 256;
// Fused attention keeps the tensor units less busy than a GEMM: 63 % forward at long sequences on A100 (Dao,
// "FlashAttention-2", 2023, abstract: 50 to 73 %).
constexpr double kAttentionEfficiency = 0.63;
}  // namespace

Seconds Roofline::seconds(const Gemm& gemm) const {
    const double peak = device_.matrix_flops(gemm.precision);
    const auto units = static_cast<double>(device_.compute_units);
    // The smallest tile that still fills the device is what a library's heuristics pick.
    double best = 1e300;
    for (const double scale : {1.0, 0.5, 0.25}) {
        const double tile_m = kTileM * std::sqrt(scale);
        const double tile_n = kTileN * std::sqrt(scale);
        const double tiles = std::ceil(gemm.m / tile_m) * std::ceil(gemm.n / tile_n) * gemm.batch;
        const double waves = std::ceil(tiles / units);
        const double tile_seconds =
            2 * tile_m * tile_n * gemm.k / (peak / units * kPeakInsideTile * std::sqrt(std::sqrt(scale)));
        best = std::min(best, waves * tile_seconds);
    }
    const double memory = (gemm.bytes() - gemm.extra_bytes) / memory_rate();
    return Seconds(device_.launch.value + std::max(best, memory) + gemm.extra_bytes / memory_rate());
}

Seconds Roofline::seconds(const Attention& attention) const {
    const double compute = attention.flops() / (device_.flops_bf16.value * kAttentionEfficiency);
    const double memory = (attention.backward ? 8 : 4) * attention.batch_heads *
                          std::max(attention.queries, attention.keys) * attention.head_dim * 2 / memory_rate();
    return Seconds(device_.launch.value + std::max(compute, memory));
}

Seconds Roofline::seconds(const Streaming& streaming) const {
    return Seconds(streaming.kernels * device_.launch.value + streaming.bytes / memory_rate());
}

}  // namespace orrery
