#pragma once
// What a fabric decides of a collective: the algorithm, where it was left to `auto`, and the shape of a torus.
//
// Claims: of the algorithms that do the operation, the one whose estimate (steps x (latency + bytes over the narrowest link
// that a step shares) is least is taken, as NCCL tunes. The estimates know rates inside and between nodes, all NICs of a node
// together, and the bisection; contention beyond that is simulated, not estimated.
// Validated by tests/workloads/collective_choice_test.cpp.

#include "workloads/collective/message_run.hpp"

namespace orrery::collective {

/// Over the first so many ranks of a placement.
[[nodiscard]] CollectiveSpec resolved(const CollectiveSpec& spec, const Fabric& fabric, const Placement& placement,
                                      PathChoice paths, std::uint32_t ranks);

}  // namespace orrery::collective
