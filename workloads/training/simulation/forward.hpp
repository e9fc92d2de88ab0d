#pragma once
// Forward passes alone over the sequences of a plan's step, as models that only judge run them.
//
// Claims: each micro-batch passes the stages as in training, by the same prices; micro-batches follow each other through them, so that a
// step takes one way through all stages and, for each further micro-batch, its slowest stage. Limits: weights are where they are used
// (no ZeRO-3, no offload), a stage's chunks are passed in a row, nothing is sent back; documents are alike in all micro-batches.
// Validated by tests/workloads/rl_test.cpp.

#include "workloads/training/lowering/lower.hpp"

namespace orrery::training {

/// Seconds of the forward passes of `sequences` sequences, shared by the plan's replicas in whole micro-batches.
[[nodiscard]] double forward_seconds(const TrainingInput& input, double sequences);

}  // namespace orrery::training
