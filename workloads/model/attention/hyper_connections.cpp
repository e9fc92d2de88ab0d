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
    constexpr double kStarts = 5.5;
    LayerOperation one{"sums of residual streams", LayerRole::choice, at.rows / at.shard.rows};
    one.in = blocks * kReads * streams * hidden;
    one.out = blocks * hidden;
    one.launches = blocks * kStarts;
    one.weights = blocks * stream_weights(streams, hidden);
    one.kept = blocks * (streams - 1) * hidden;  // the norm behind keeps one
    return {one};
}

LayerOperations behind_blocks(const LayerContext& at, double streams, double blocks) {
    if (streams <= 1) {
        return {};
    }
    const auto hidden = static_cast<double>(at.model.hidden);
    LayerOperation one{"outputs to residual streams", LayerRole::choice, at.rows / at.shard.rows};
    one.in = blocks * (streams + 1) * hidden;
    one.out = blocks * streams * hidden;
    constexpr double kStarts = 2.6;
    one.launches = blocks * kStarts;
    return {one};
}

}  // namespace orrery::model
