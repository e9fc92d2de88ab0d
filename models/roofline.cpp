#include "models/roofline.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace orrery::models {

namespace {
constexpr double kPeakInsideTile = 0.92;
struct TileSize {
    double rows, columns;
};
// Of a large product; where these leave units idle, half and a quarter of their area; of few rows, those of matrix instructions, which
// 32-bit products on vector units do without.
constexpr TileSize kTileSizes[] = {
    {128, 256}, {90.50966799187809, 181.01933598375618}, {64, 128}, {32, 128}, {16, 128}};
constexpr double kLeastDepth = 64;  // of a part of a sum, a few steps of a tile's loop
// Fused attention keeps the tensor units less busy than a GEMM: 63 % forward at long sequences on A100 (Dao,
// "FlashAttention-2", 2023, abstract: 50 to 73 %).
constexpr double kAttentionEfficiency = 0.63;
// What the smallest fused attention takes beyond a launch: it waits for its block table, keys, values and sums one after another, and a
// second kernel joins the parts of long sums. Medians of the starts fitted to vLLM's on eight NVIDIA devices (start_us of decode-bf16
// and prefill-bf16 in models/data/kernels), less their launches: decoding 9.8 us (of 7 to 16), prompts 9.3 (of 4 to 11); rounded.
constexpr double kAttentionStart = 10e-6;
// FlashAttention-2 is 1.3 to 1.5 times as fast as FlashAttention of 2022 in Triton forward, and twice as fast backward (Dao, "FlashAttention-2",
// arXiv:2307.08691, section 4.1).
constexpr double kFlash1Forward = 1.4;
constexpr double kFlash1Backward = 2;
// What kernels of an indexer, of choosing keys and of the delta rule in chunks reach where they were measured: medians of the efficiencies and
// of the starts, less a launch of 2 us, of their fits (models/data/kernels: index_prefill and choice on four devices; delta_prefill, those of
// flash-linear-attention in Triton that SGLang runs, on six). Their arithmetic and their memory traffic do not overlap. Decoding runs at
// the memory's rate.
constexpr double kIndexEfficiency = 0.55;
constexpr double kIndexMemory = 0.54;
constexpr double kChoiceMemory = 0.33;
constexpr double kChoiceStart = 3e-6;
constexpr double kScanEfficiency = 0.05;
constexpr double kScanMemory = 0.32;
constexpr double kScanStart = 23e-6;
// Mean error of a roofline with waves carried from one device to another (H100 to A100, B200: 17 to 18 %; A100 to H100:
// 25 %), as a standard deviation of the logarithm.
constexpr double kRooflineSpread = 0.25;
// Pinned copies over PCIe where nobody measured them: 16 lanes of generation 4.
constexpr double kRooflineHostBandwidth = 25e9;
}  // namespace

double split_accumulator(const DeviceSpec& device, const Gemm& gemm) {
    return gemm.split_accumulator && gemm.precision == Precision::fp8 ? std::max(1.0, device.split_accumulator.value)
                                                                      : 1;
}

double earlier_attention(const DeviceSpec& device, const Attention& attention) {
    const double flash2 = device.flash2.value > 0 ? 1 / device.flash2.value : 1;
    if (attention.fused == FusedAttention::newest) {
        return attention.trains || attention.backward ? std::min(1.0, flash2) : 1;
    }
    const double flash1 = attention.backward ? kFlash1Backward : kFlash1Forward;
    return attention.fused == FusedAttention::flash1 ? flash2 * flash1 : flash2;
}

double flops_of(const Operation& operation) {
    return std::visit(
        [](const auto& one) -> double {
            if constexpr (requires { one.flops(); }) {
                return one.flops();
            } else {
                return 0;
            }
        },
        operation);
}

double bytes_of(const Operation& operation) {
    return std::visit(
        [](const auto& one) -> double {
            using Type = std::decay_t<decltype(one)>;
            if constexpr (std::is_same_v<Type, Copy>) {
                return one.direction == CopyDirection::on_device ? 2 * one.bytes : one.bytes;
            } else if constexpr (std::is_same_v<Type, Streaming>) {
                return one.bytes;
            } else if constexpr (std::is_same_v<Type, Launch>) {
                return 0;
            } else {
                return one.bytes();
            }
        },
        operation);
}

double Roofline::product(double m, double n, double k, double batch, Precision precision) const {
    double peak = device_.matrix_flops(precision);
    if (peak <= 0) {
        peak = device_.flops_bf16.value;  // operands are expanded to 16 bits
    }
    const double inside = device_.matrix_efficiency.value > 0 ? device_.matrix_efficiency.value : kPeakInsideTile;
    const auto units = static_cast<double>(device_.compute_units);
    // The smallest tile that still fills the device is what a library's heuristics pick.
    double best = 1e300;
    for (const TileSize& tile : kTileSizes) {
        if (tile.rows < 64 && precision == Precision::fp32) {
            break;
        }
        const double area = tile.rows * tile.columns;
        const double share = area / (kTileSizes[0].rows * kTileSizes[0].columns);
        const double tiles = std::ceil(m / tile.rows) * std::ceil(n / tile.columns) * batch;
        const double tile_seconds = 2 * area * k / (peak / units * inside * std::sqrt(std::sqrt(share)));
        // Few outputs of a long sum: units share its parts, whose sums in 32 bits are written and read once more.
        for (double parts = 1; parts == 1 || (parts * tiles <= units && parts * kLeastDepth <= k); parts *= 2) {
            const double sums = parts > 1 ? 2 * 4 * parts * m * n * batch / memory_rate() : 0;
            best = std::min(best, std::ceil(parts * tiles / units) * tile_seconds / parts + sums);
        }
    }
    return best;
}

double Roofline::seconds_of(const Gemm& gemm) const {
    const double memory = (gemm.bytes() - gemm.extra_bytes) / memory_rate();
    const double compute =
        split_accumulator(device_, gemm) * product(gemm.m, gemm.n, gemm.k, gemm.batch, gemm.precision);
    return device_.launch.value + std::max(compute, memory) + gemm.extra_bytes / memory_rate();
}

double Roofline::seconds_of(const GroupedGemm& gemm) const {
    const double active = std::max(1.0, gemm.active_experts());
    const double compute = product(gemm.rows() / active, gemm.n, gemm.k, active, gemm.precision);
    return device_.launch.value + std::max(compute, gemm.bytes() / memory_rate());
}

double Roofline::seconds_of(const FusedExperts& experts) const {
    return seconds_of(experts.up()) + seconds_of(experts.down()) +
           seconds_of(ExpertRouting{experts.tokens, experts.experts, experts.topk, experts.hidden});
}

double Roofline::seconds_of(const ExpertRouting& routing) const {
    constexpr double kKernels = 4;  // gate, top-k, sort and scatter, gather
    return kKernels * device_.launch.value + routing.bytes() / memory_rate();
}

// Devices that launch nothing run it as a part of a larger dataflow.
double Roofline::attention_start() const {
    return device_.launch.value > 0 ? device_.launch.value + kAttentionStart : 0;
}

double Roofline::seconds_of(const Attention& attention) const {
    const double compute = attention.flops() / (device_.flops_bf16.value * kAttentionEfficiency);
    return attention_start() +
           earlier_attention(device_, attention) * std::max(compute, attention.bytes() / memory_rate());
}

double Roofline::seconds_of(const LatentAttention& attention) const {
    const double compute = attention.flops() / (device_.flops_bf16.value * kAttentionEfficiency);
    return attention_start() + std::max(compute, attention.bytes() / memory_rate());
}

double Roofline::seconds_of(const IndexScores& scores) const {
    if (scores.decodes()) {
        return device_.launch.value + scores.bytes() / memory_rate();
    }
    const double own = device_.matrix_flops(scores.precision);
    const double peak = own > 0 ? own : device_.flops_bf16.value;
    return device_.launch.value + scores.flops() / (peak * kIndexEfficiency) +
           scores.bytes() / (memory_rate() * kIndexMemory);
}

double Roofline::seconds_of(const TopChoice& choice) const {
    const double start = device_.launch.value > 0 ? device_.launch.value + kChoiceStart : 0;
    return start + choice.bytes() / (memory_rate() * kChoiceMemory);
}

double Roofline::seconds_of(const DeltaScan& scan) const {
    if (scan.decodes()) {
        return device_.launch.value + scan.bytes() / memory_rate();
    }
    const double start = device_.launch.value > 0 ? device_.launch.value + kScanStart : 0;
    return start + scan.flops() / (device_.flops_bf16.value * kScanEfficiency) +
           scan.bytes() / (memory_rate() * kScanMemory);
}

double Roofline::streaming_start() const {
    return device_.streaming_start.value > 0 ? device_.streaming_start.value : device_.launch.value;
}

double Roofline::seconds_of(const Streaming& streaming) const {
    return streaming.kernels * streaming_start() + streaming.bytes / memory_rate();
}

double Roofline::seconds_of(const Copy& copy) const {
    if (copy.direction == CopyDirection::on_device) {
        return streaming_start() + 2 * copy.bytes / memory_rate();
    }
    const double rate = device_.host_bandwidth.value > 0 ? device_.host_bandwidth.value : kRooflineHostBandwidth;
    return device_.launch.value + copy.bytes / rate;
}

double Roofline::seconds_of(const Launch& launch) const {
    const bool graph = launch.graph && device_.graph_launch.value > 0;
    return launch.kernels * (graph ? device_.graph_launch.value : device_.launch.value);
}

Cost Roofline::cost(const Operation& operation) const {
    Cost cost;
    cost.seconds = Seconds(std::visit([this](const auto& one) { return seconds_of(one); }, operation));
    cost.flops = flops_of(operation);
    cost.bytes = orrery::bytes_of(operation);
    cost.spread = kRooflineSpread;
    cost.systematic = kRooflineSpread;  // one model for all shapes: its errors go together
    return cost;
}

}  // namespace orrery::models
