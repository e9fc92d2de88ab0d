#pragma once
// What several scheduling policies share. A policy is a file of its own and a row in table.cpp.

#include "workloads/serving/schedulers/scheduler.hpp"

namespace orrery::serving {

/// Tokens of a sequence from its prompt to its end, for policies that take room for all of them at once.
[[nodiscard]] inline std::uint64_t whole_of(const EngineState& state, const Sequence& sequence) {
    return std::uint64_t{sequence.prompt} + std::max(sequence.output, state.beyond(sequence));
}

/// Schedules a sequence as vLLM 1 does, which names blocks when it plans what computes them: a layer writes all keys of an iteration
/// before it attends to any, so that prompts which start together compute what they have in common once
/// (vllm/v1/core/kv_cache_manager.py, allocate_slots; pull request 29387 names the layers for which that is not so).
[[nodiscard]] bool schedule_and_name(EngineState& state, std::uint32_t index, std::uint32_t tokens, Batch& batch);

/// vLLM 1: running sequences in order of admission, a token or a piece of the prompt each, then waiting prompts cut to what
/// is left of the token budget. Blocks are taken piece by piece; when they run out, who came last is preempted, and nobody is
/// admitted in that iteration.
class ChunkedPrefill final : public Scheduler {
  public:
    using Parameters = NoParameters;
    explicit ChunkedPrefill(const Parameters& = {}) {}
    void plan(EngineState& state, Batch& batch) override;
};

}  // namespace orrery::serving
