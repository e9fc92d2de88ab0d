#pragma once
// Pipeline schedules: in which order a stage runs its forward and backward passes. One file and one row each; a row owns what
// the schedule needs, its errors and its closed forms. Names and errors elsewhere come from the table.
//
// Validated by tests/workloads/training_test.cpp: each pass exactly once, the closed forms against the passes themselves and
// against simulated iterations of equal stages.

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::inline training {

/// One pass of one micro-batch through one model chunk of a stage. Where a schedule splits backward passes, one with `weights`
/// takes the gradients of the weights and one without those of the input alone.
struct Pass {
    bool backward;
    std::uint32_t chunk;
    std::uint32_t micro_batch;
    bool weights = false;
    friend bool operator==(const Pass&, const Pass&) = default;
};

struct PipelineShape {
    std::uint32_t stages = 1;
    std::uint32_t chunks = 1;  ///< of the model in a stage; virtual stage chunk * stages + stage
    std::uint32_t micro_batches = 1;
};

/// One row of the table. Each schedule ends with the last backward pass of chunk 0.
struct PipelineSchedule {
    const char* name;
    const char* description;
    bool chunked;   ///< stages may hold several chunks
    bool searched;  ///< `orrery plan` tries it where the scenario does not name it
    /// Why it cannot run in this shape; empty: it can.
    std::string (*problem)(const PipelineShape& shape);
    /// The passes of a stage in order. Precondition: no problem.
    std::vector<Pass> (*passes)(const PipelineShape& shape, std::uint32_t stage);
    /// Micro-batch activations of one chunk that a stage holds at its peak.
    std::uint32_t (*in_flight)(const PipelineShape& shape, std::uint32_t stage);
    /// What a stage waits in an iteration where all are equal and sends take no time: in forward and backward passes of one
    /// micro-batch through a stage's whole part of the model. Over the micro-batches: the share of the ideal time.
    double (*bubble)(const PipelineShape& shape);
    bool splits = false;  ///< backward passes, into gradients of the input and of the weights
};
[[nodiscard]] const std::vector<const PipelineSchedule*>& schedule_table();
/// Precondition: the table has it.
[[nodiscard]] const PipelineSchedule& schedule_named(const std::string& name);
/// What a plan runs that names none: 1F1B.
[[nodiscard]] const PipelineSchedule* default_schedule();

// What several schedules share.

/// The peak that a list of passes has.
[[nodiscard]] std::uint32_t peak_in_flight(const std::vector<Pass>& passes);
/// `warmup` forward passes, then a forward and a backward pass in turn, then the remaining backward passes, where
/// `pass(backward, i)` is the i-th of its direction out of `total`.
template <class NthPass>
[[nodiscard]] std::vector<Pass> forward_then_in_turn(std::uint32_t warmup, std::uint32_t total, const NthPass& pass) {
    std::vector<Pass> passes;
    passes.reserve(2UL * total);
    std::uint32_t forward = 0;
    std::uint32_t backward = 0;
    while (forward < warmup) {
        passes.push_back(pass(false, forward++));
    }
    while (forward < total) {
        passes.push_back(pass(false, forward++));
        passes.push_back(pass(true, backward++));
    }
    while (backward < total) {
        passes.push_back(pass(true, backward++));
    }
    return passes;
}

}  // namespace orrery::inline training
