#pragma once
// An operation of a layer as one kernel of a device: operands in 16 bits, nothing fused.

#include "workloads/model/layer_program.hpp"

namespace orrery::model {

/// Nothing for sums over ranks, which have no price on one device.
[[nodiscard]] std::optional<Operation> plain_operation(const LayerOperation& one);

}  // namespace orrery::model
