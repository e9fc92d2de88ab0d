#pragma once
// What policies that swap sequences out do to bring them back.

#include "workloads/serving/schedulers/policies.hpp"

namespace orrery::serving {

/// Brings sequences back from host memory while the batch has room, in the order in which they lie, and gives each a token.
void swap_back(EngineState& state, Batch& batch);

}  // namespace orrery::serving
