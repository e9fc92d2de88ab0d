#pragma once
// Pipeline schedules: in which order a stage runs its forward and backward passes.
//
// Sources: GPipe, arXiv:1811.06965; 1F1B and interleaved 1F1B: Narayanan et al., SC21, arXiv:2104.04473, section 2.2.
// Validated by tests/workloads/training_test.cpp: bubble (p - 1)(f + b) / v for equal stages, each pass exactly once.

#include "workloads/training/spec.hpp"

#include <vector>

namespace orrery {

/// One pass of one micro-batch through one model chunk of a stage.
struct Pass {
    bool backward;
    std::uint32_t chunk;
    std::uint32_t micro_batch;
    friend bool operator==(const Pass&, const Pass&) = default;
};

/// The passes of stage `stage` in order. Precondition: check() accepted the plan.
[[nodiscard]] std::vector<Pass> schedule_of(ScheduleKind kind, std::uint32_t stages, std::uint32_t chunks,
                                            std::uint32_t micro_batches, std::uint32_t stage);

/// Micro-batch activations of one chunk that a stage holds at its peak.
[[nodiscard]] std::uint32_t peak_in_flight(const std::vector<Pass>& passes);

}  // namespace orrery
