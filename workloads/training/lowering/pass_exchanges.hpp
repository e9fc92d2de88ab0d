#pragma once
// Whether exchanges of passes between nodes are activities on the fabric. How: lower_pass_exchanges.cpp.

#include "workloads/training/lowering/lower.hpp"

namespace orrery::training {

/// They are where transfers divide links among themselves (not one after another, nor packet by packet), in passes that are drawn from
/// programs of whole layers; else each takes its price.
[[nodiscard]] bool exchanges_on_fabric(const TrainingInput& input);

}  // namespace orrery::training
