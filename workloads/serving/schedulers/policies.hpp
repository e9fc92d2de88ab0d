#pragma once
// The policies behind make_scheduler, one file each.

#include "workloads/serving/scheduler.hpp"

namespace orrery {

/// FasterTransformer: batches are formed once and run until their longest sequence ends.
class StaticBatches final : public Scheduler {
  public:
    void plan(EngineState& state, Batch& batch) override;

  private:
    std::uint32_t formed_ = 0;  ///< sequences of the batch under way
};

/// Orca (Yu et al., OSDI 2022): first come, first served, every iteration; room for the longest possible output is set
/// aside at admission, prompts and decodes share an iteration.
class Orca final : public Scheduler {
  public:
    void plan(EngineState& state, Batch& batch) override;
};

/// vLLM before version 1: an iteration is either prompts (whole, as many as fit) or one token of every running sequence;
/// prompts go first. When blocks run out, the sequence that came last is preempted.
class PrefillFirst final : public Scheduler {
  public:
    explicit PrefillFirst(Preemption preemption) : preemption_(preemption) {}
    void plan(EngineState& state, Batch& batch) override;

  private:
    [[nodiscard]] static bool plan_prompts(EngineState& state, Batch& batch);
    void plan_decodes(EngineState& state, Batch& batch) const;
    Preemption preemption_;
};

/// Sarathi-Serve (Agrawal et al., OSDI 2024) and vLLM 1: running sequences first, one token each, then prompts cut to what
/// is left of the token budget.
class ChunkedPrefill final : public Scheduler {
  public:
    void plan(EngineState& state, Batch& batch) override;
};

/// FastServe (Wu et al., arXiv:2305.05920): levels of priority; a sequence joins at the level whose quantum covers its
/// prompt, sinks when it has used its quantum, and yields to higher levels every iteration. Yielding keeps its blocks as
/// long as there are any.
class FastServe final : public Scheduler {
  public:
    FastServe(std::uint32_t levels, std::uint32_t first_quantum) : levels_(levels), first_quantum_(first_quantum) {}
    void plan(EngineState& state, Batch& batch) override;
    void after(EngineState& state, const Batch& batch) override;

  private:
    [[nodiscard]] double quantum(std::uint32_t level) const;
    /// Takes the blocks of the lowest running sequence below `index` that does not compute now; false when there is none.
    static bool give_way(EngineState& state, const Batch& batch, std::uint32_t index);
    std::uint32_t levels_;
    std::uint32_t first_quantum_;
};

/// Virtual token counters (Sheng et al., OSDI 2024): of the waiting requests, that of the session which has been served the
/// least goes first; a prompt token counts one, an output token two. Otherwise as ChunkedPrefill.
class FairShare final : public Scheduler {
  public:
    void plan(EngineState& state, Batch& batch) override;
    void after(EngineState& state, const Batch& batch) override;

  private:
    std::vector<double> served_;  ///< by session
    ChunkedPrefill inner_;
};

}  // namespace orrery
