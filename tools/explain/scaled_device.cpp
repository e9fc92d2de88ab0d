#include "tools/explain/scaled_device.hpp"

#include <algorithm>

namespace orrery {

Seconds ScaledDevice::scaled(Seconds seconds, double flops, double peak, double bytes) const {
    const double arithmetic = peak > 0 ? flops / peak : 0;
    const double memory = bytes / (device_.memory_bandwidth.value * device_.memory_efficiency.value);
    const double bound = std::max(arithmetic, memory);
    const double kernel = seconds.value() - device_.launch.value;
    if (bound <= 0 || kernel <= 0) {
        return seconds;
    }
    return Seconds(device_.launch.value + kernel * std::max(arithmetic / arithmetic_, memory / memory_) / bound);
}

Seconds ScaledDevice::seconds(const Gemm& gemm) const {
    return scaled(base_.seconds(gemm), gemm.flops(), device_.matrix_flops(gemm.precision), gemm.bytes());
}

Seconds ScaledDevice::seconds(const Attention& attention) const {
    // Queries, keys, values and output once in 16 bits; twice that in the backward pass.
    const double bytes = (attention.backward ? 8 : 4) * attention.batch_heads *
                         std::max(attention.queries, attention.keys) * attention.head_dim * 2;
    return scaled(base_.seconds(attention), attention.flops(), device_.flops_bf16.value, bytes);
}

Seconds ScaledDevice::seconds(const Streaming& streaming) const {
    const Seconds whole = base_.seconds(streaming);
    const double launches = streaming.kernels * device_.launch.value;
    return Seconds(launches + std::max(0.0, whole.value() - launches) / memory_);
}

}  // namespace orrery
