#pragma once
// The policies behind make_scheduler, one file each.

#include "workloads/serving/schedulers/scheduler.hpp"

namespace orrery {

/// Tokens of a sequence from its prompt to its end, for policies that take room for all of them at once.
[[nodiscard]] inline std::uint64_t whole_of(const EngineState& state, const Sequence& sequence) {
    return std::uint64_t{sequence.prompt} + std::max(sequence.output, state.beyond(sequence));
}

/// FasterTransformer: batches are formed once and run until their longest sequence ends; in a pipeline one for each stage.
class StaticBatches final : public Scheduler {
  public:
    void plan(EngineState& state, Batch& batch) override;

  private:
    std::vector<std::uint32_t> formed_;  ///< sequences that each batch had when it was formed
};

/// Orca (Yu et al., OSDI 2022): first come, first served, every iteration; room for the longest possible output is set
/// aside at admission, prompts and decodes share an iteration. In a pipeline each batch under way has its share of the sequences.
class Orca final : public Scheduler {
  public:
    void plan(EngineState& state, Batch& batch) override;
};

/// vLLM before version 1: an iteration is either prompts (whole, as many as fit) or one token of every running sequence;
/// prompts go first. When blocks run out, the sequence that came last is preempted. In a pipeline each batch under way has its
/// share of the sequences.
class PrefillFirst final : public Scheduler {
  public:
    explicit PrefillFirst(Preemption preemption) : preemption_(preemption) {}
    void plan(EngineState& state, Batch& batch) override;

  private:
    [[nodiscard]] static bool plan_prompts(EngineState& state, Batch& batch);
    void plan_decodes(EngineState& state, Batch& batch) const;
    Preemption preemption_;
};

/// vLLM 1: running sequences in order of admission, a token or a piece of the prompt each, then waiting prompts cut to what
/// is left of the token budget. Blocks are taken piece by piece; when they run out, who came last is preempted, and nobody is
/// admitted in that iteration.
class ChunkedPrefill final : public Scheduler {
  public:
    void plan(EngineState& state, Batch& batch) override;
};

/// Sarathi-Serve (Agrawal et al., OSDI 2024, algorithm 3): all decodes, then prompts that have begun, then new ones, cut to
/// what is left of the token budget. As in the block manager of vLLM 0, on which it was built, a prompt is admitted when the
/// whole of it has room beside the watermark. A sequence that comes with its cache decodes in the next iteration, whatever
/// prompts are under way (as machines of Splitwise's mixed pool do).
class Sarathi final : public Scheduler {
  public:
    void plan(EngineState& state, Batch& batch) override;
};

/// Dynamic SplitFuse (Holmes et al., "DeepSpeed-FastGen", arXiv:2401.08671): decodes first, then long prompts are split and
/// short ones put together so that an iteration has exactly the token budget. A piece is also cut to the blocks that there are; a
/// sequence that finds none waits with what it has, and only when nothing at all can run who came last starts anew.
class SplitFuse final : public Scheduler {
  public:
    void plan(EngineState& state, Batch& batch) override;
};

/// Waiting requests by what they will need, for work whose lengths are known beforehand (batches, offline); otherwise as
/// ChunkedPrefill. Shortest first: by tokens of the prompt, the least mean wait. Decode-heavy first: by prompt over output, so
/// that long outputs overlap all the others and prompts, which come later, fill the compute that decoding leaves (the resource
/// profiles of Zhao et al., "BlendServe", arXiv:2411.16102, without its sharing of prefixes).
class Sorted final : public Scheduler {
  public:
    explicit Sorted(bool decode_heavy) : decode_heavy_(decode_heavy) {}
    void plan(EngineState& state, Batch& batch) override;

  private:
    bool decode_heavy_;
    std::uint64_t sorted_ = 0;  ///< arrivals in the queue as of the last sorting
    ChunkedPrefill inner_;
};

/// TensorRT-LLM's in-flight batching without chunks and without eviction: one token of every running sequence and whole
/// prompts, first come, first served, up to the token budget; room for the longest possible output is set aside at admission.
/// While others decode, prompts may wait for company (`batch_wait_timeout_iters` and `batch_wait_max_tokens_ratio` there).
class InFlight final : public Scheduler {
  public:
    InFlight(std::int64_t wait_iterations, double wait_share)
        : wait_iterations_(wait_iterations), wait_share_(wait_share) {}
    void plan(EngineState& state, Batch& batch) override;

  private:
    [[nodiscard]] bool waits(const EngineState& state, std::uint32_t decoding);
    std::int64_t wait_iterations_;
    double wait_share_;
    std::int64_t waited_ = 0;
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
