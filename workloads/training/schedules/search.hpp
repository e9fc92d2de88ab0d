#pragma once
// The parts of schedules/search.cpp: an order of forward passes, input gradients and weight gradients, found for what they take.
//
// Micro-batches are alike, so that some best order takes each kind of pass of a stage in the order of micro-batches: a stage is a word
// of F, B and W alone. (Number the passes of any order anew by when they come: every input is still there in time, and as many
// activations are held.)

#include "workloads/training/schedules/schedule.hpp"

#include <optional>

namespace orrery::training {

/// What a searched order is for: ps that the passes of one micro-batch take on each stage, and what goes from it to its neighbours
/// behind a forward pass and behind the gradient of the input.
struct MeasuredPipeline {
    std::vector<std::int64_t> forward, input, weight;
    std::vector<std::int64_t> send, send_gradient;
    std::vector<std::int64_t> step;   ///< what comes behind a stage's last pass
    bool ends_meet = false;           ///< the first and the last stage take their steps together: they share a table
    bool sender_waits = false;        ///< for its sends
    std::vector<std::uint32_t> held;  ///< micro-batches whose activations a stage may hold: one at least
    std::uint32_t tries = 0;          ///< nodes of the integer program that are looked at, and ten times as many orders
};

/// The passes of each stage, micro-batch after micro-batch.
using StageWord = std::vector<PassWork>;
using OrderWords = std::vector<StageWord>;

/// From the first pass of a stage to the end of its step: of the stage where that is longest, and of all together.
struct OrderTime {
    std::int64_t longest = 0;
    std::int64_t sum = 0;
    friend auto operator<=>(const OrderTime&, const OrderTime&) = default;
};

/// Each stage takes its passes as soon as their inputs are there. Nothing where stages wait for each other, where a stage takes a
/// pass before what it needs, or holds more than it may.
[[nodiscard]] std::optional<OrderTime> play(const PipelineShape& shape, const MeasuredPipeline& measured,
                                            const OrderWords& words);

/// No order is faster: the work of a stage and what it waits for its first gradient with no more passes than it may hold; or what
/// another stage takes from its first pass to its last gradient, and the way there and back.
[[nodiscard]] std::int64_t least_time(const PipelineShape& shape, const MeasuredPipeline& measured);

/// How a stage chooses its next pass.
struct ListRule {
    enum class Ahead : std::uint8_t { stages_behind, twice, limit };
    Ahead ahead;           ///< forward passes that may wait for their gradients
    bool gradients_first;  ///< where both are ready; else forward passes
    double wait_for_pass;  ///< rather than begin weight gradients, for what is ready within this share of their time
    double keep_free;      ///< rather than begin a forward pass, where a gradient comes within this share of its time
};
[[nodiscard]] std::vector<ListRule> list_rules();
/// The stages in time, each by the rule.
[[nodiscard]] OrderWords list_schedule(const PipelineShape& shape, const MeasuredPipeline& measured,
                                       const ListRule& rule);

/// Passes moved along their stages as long as that helps and `tries` are left, which it takes from.
[[nodiscard]] OrderWords improve(const PipelineShape& shape, const MeasuredPipeline& measured, OrderWords words,
                                 std::uint64_t& tries);

/// Whether the integer program of this shape is small enough to be worth its time.
[[nodiscard]] bool program_fits(const PipelineShape& shape);
/// A faster order by the integer program, within so many nodes of its tree.
struct ProgramResult {
    std::optional<OrderWords> words;  ///< faster than `best`
    bool proven = false;              ///< that none is faster than these, or than `best`
};
[[nodiscard]] ProgramResult solve_program(const PipelineShape& shape, const MeasuredPipeline& measured,
                                          std::int64_t best, std::uint32_t nodes);

[[nodiscard]] OrderWords words_of(const PipelineOrder& order);
[[nodiscard]] PipelineOrder order_of(const OrderWords& words);

}  // namespace orrery::training
