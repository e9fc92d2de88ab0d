#include "workloads/model/plain_operation.hpp"

namespace orrery::model {

std::optional<Operation> plain_operation(const LayerOperation& one) {
    const auto stream = [&](StreamingKind kind) { return Streaming{2 * one.values(), one.launches, kind}; };
    switch (one.role) {
        case LayerRole::input:
        case LayerRole::output:
        case LayerRole::router:
            return Gemm{one.rows, one.out, one.in};
        case LayerRole::core:
            return one.kernel;
        case LayerRole::norm:
        case LayerRole::inner_norm:
            return stream(StreamingKind::norm);
        case LayerRole::position:
            return stream(StreamingKind::rotary);
        case LayerRole::activation:
            return stream(StreamingKind::activation);
        case LayerRole::residual:
            return stream(StreamingKind::add);
        case LayerRole::choice:
            return stream(StreamingKind::any);
        case LayerRole::sum:
            break;
    }
    return std::nullopt;
}

}  // namespace orrery::model
