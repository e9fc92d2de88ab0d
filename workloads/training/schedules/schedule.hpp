#pragma once
// Pipeline schedules: in which order a stage runs its forward and backward passes. One file and one row each; a row owns what
// the schedule needs, its errors and its closed forms. Names and errors elsewhere come from the table.
//
// Validated by tests/workloads/training_test.cpp: each pass exactly once, the closed forms against the passes themselves and
// against simulated iterations of equal stages.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::training {

/// What a pass does. Where a schedule splits backward passes, input_gradient and weight_gradient are the two parts of one. Where
/// the vocabulary is cut over all stages, scores and score_gradients are a stage's part of the output layer.
enum class PassWork : std::uint8_t { forward, backward, input_gradient, weight_gradient, scores, score_gradients };
inline constexpr std::size_t kPassWorks = 6;

/// One pass of one micro-batch through one model chunk of a stage.
struct Pass {
    PassWork work;
    std::uint32_t chunk;
    std::uint32_t micro_batch;
    bool joined = false;  ///< overlaps with the stage's next pass: both begin and end as one
    friend bool operator==(const Pass&, const Pass&) = default;
    /// The gradients of the chunk's weights are part of it: activations can go.
    [[nodiscard]] bool ends_micro_batch() const {
        return work == PassWork::backward || work == PassWork::weight_gradient;
    }
    /// It passes the gradient of its input on.
    [[nodiscard]] bool gives_gradient() const { return work == PassWork::backward || work == PassWork::input_gradient; }
};
/// The passes of each stage, in order.
using PipelineOrder = std::vector<std::vector<Pass>>;

/// Whether the tables of the vocabulary lie on the ends of the model, or are cut over all stages, whose parts of the output layer
/// meet in so many barriers.
enum class VocabularyParallel : std::uint8_t { none, two_barriers, one_barrier };

struct PipelineShape {
    std::uint32_t stages = 1;
    std::uint32_t chunks = 1;  ///< of the model in a stage
    std::uint32_t micro_batches = 1;
    VocabularyParallel vocabulary = VocabularyParallel::none;
};

struct MeasuredPipeline;  // schedules/search.hpp

/// Which part of the model each chunk of a stage holds; the model is cut into parts, in order. round_robin: part v is on stage v
/// modulo the stages. back_and_forth: to the last stage, and from there back again. both_ways: as many parts as stages, and two
/// copies of each; chunk 0 holds that of micro-batches that come in at the first stage, chunk 1 that of those from the last one.
enum class StageMap : std::uint8_t { round_robin, back_and_forth, both_ways };

struct ChunkPlace {
    std::uint32_t stage;
    std::uint32_t chunk;
    friend bool operator==(const ChunkPlace&, const ChunkPlace&) = default;
};
[[nodiscard]] std::uint32_t parts_of(StageMap map, const PipelineShape& shape);
[[nodiscard]] std::uint32_t part_at(StageMap map, const PipelineShape& shape, ChunkPlace place);
/// Where part `part` is for micro-batches that come to chunk `way` (of both_ways alone) first.
[[nodiscard]] ChunkPlace place_of_part(StageMap map, const PipelineShape& shape, std::uint32_t part, std::uint32_t way);

/// One row of the table.
struct PipelineSchedule {
    const char* name;
    const char* description;
    bool chunked;   ///< stages may hold several chunks
    bool searched;  ///< `orrery plan` tries it where the scenario does not name it
    /// Why it cannot run in this shape; empty: it can.
    std::string (*problem)(const PipelineShape& shape);
    /// Made once for all stages. Precondition: no problem.
    PipelineOrder (*order)(const PipelineShape& shape);
    /// Micro-batch activations of one chunk that each stage holds at its peak.
    std::vector<std::uint32_t> (*in_flight)(const PipelineShape& shape);
    /// What a stage waits in an iteration where all are equal and sends take no time: in forward and backward passes of one
    /// micro-batch through a stage's whole part of the model. Over the micro-batches: the share of the ideal time.
    double (*bubble)(const PipelineShape& shape);
    bool splits = false;  ///< backward passes, into gradients of the input and of the weights
    StageMap map = StageMap::round_robin;
    bool staggers = false;         ///< stages begin the next iteration as they end this one, not all at once
    bool cuts_vocabulary = false;  ///< its order may have passes of the output layer
    /// Where the order depends on what passes take; `order` is then that of equal ones.
    PipelineOrder (*search)(const PipelineShape& shape, const MeasuredPipeline& measured) = nullptr;
};
[[nodiscard]] const std::vector<const PipelineSchedule*>& schedule_table();
/// Precondition: the table has it.
[[nodiscard]] const PipelineSchedule& schedule_named(const std::string& name);
/// What a plan runs that names none: 1F1B.
[[nodiscard]] const PipelineSchedule* default_schedule();

// What several schedules share.

/// The peak that a list of passes has, where a pass through chunk i holds weight[i] (1 where there is none).
[[nodiscard]] double peak_in_flight(const std::vector<Pass>& passes, const std::vector<double>& weight = {});
/// The peaks of all stages in this order.
[[nodiscard]] std::vector<std::uint32_t> peaks_of(const PipelineOrder& order);
/// What the stage which waits longest waits in an iteration where passes take these times (by PassWork): between its first and its
/// last pass where stages begin the next iteration one after another (`staggers`), else from the first pass of all to the last.
[[nodiscard]] std::uint32_t longest_wait(StageMap map, bool staggers, const PipelineShape& shape,
                                         const PipelineOrder& order, const std::vector<std::uint32_t>& time);
/// `one(stage)` of every stage.
template <class One>
[[nodiscard]] auto of_stages(const PipelineShape& shape, const One& one) {
    std::vector<decltype(one(0U))> out;
    out.reserve(shape.stages);
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
        out.push_back(one(stage));
    }
    return out;
}
[[nodiscard]] constexpr PassWork forward_or(bool backward) {
    return backward ? PassWork::backward : PassWork::forward;
}
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

}  // namespace orrery::training
