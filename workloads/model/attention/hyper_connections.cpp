#include "workloads/model/attention/hyper_connections.hpp"

namespace orrery::model {

double stream_weights(double streams, double hidden) {
    const double sums = streams * (2 + streams);
    // Three scales, and an offset of each sum.
    return streams > 1 ? sums * streams * hidden + sums + 3 : 0;
}

LayerOperations before_blocks(const LayerContext& at, double streams, double blocks) {
    if (streams <= 1) {
        return {};
    }
    const auto hidden = static_cast<double>(at.model.hidden);
    constexpr double kReads = 2;
    constexpr double kKernels = 2;
    LayerOperation one{"sums of residual streams", LayerRole::inner_norm, at.rows / at.shard.rows};
    one.in = blocks * kReads * streams * hidden;
    one.out = blocks * hidden;
    one.launches = blocks * kKernels;
    one.weights = blocks * stream_weights(streams, hidden);
    one.kept = blocks * (streams - 1) * hidden;  // the norm behind keeps one
    return {one};
}

LayerOperations behind_blocks(const LayerContext& at, double streams, double blocks) {
    if (streams <= 1) {
        return {};
    }
    const auto hidden = static_cast<double>(at.model.hidden);
    LayerOperation one{"outputs to residual streams", LayerRole::inner_norm, at.rows / at.shard.rows};
    one.in = blocks * (streams + 1) * hidden;
    one.out = blocks * streams * hidden;
    one.launches = blocks;
    return {one};
}

}  // namespace orrery::model
