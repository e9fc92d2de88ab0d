#pragma once
// Threads that work side by side, each on a processor of its own.
//
// Why: a thread that waits for another with short breaks looks to the system like one that leaves its processor room for that other, so
// both may stay on one processor for a tenth of a second while the next is idle.
// Limits: only Linux is asked; elsewhere threads stay where they are.
// Validated by tests/sim/base/base_test.cpp.

#include "sim/base/namespaces.hpp"

#include <vector>

namespace orrery::base {

/// The processor that runs this thread; -1 where that is not known.
[[nodiscard]] int present_processor();
/// Moves this thread to a processor that it may use and that is none of `taken`, if there is one. It may be moved again.
void move_to_other_processor(const std::vector<int>& taken);

}  // namespace orrery::base
