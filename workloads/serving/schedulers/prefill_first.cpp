#include "workloads/serving/schedulers/swap_back.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::serving {

namespace {

enum class Preemption { recompute, swap };

/// vLLM before version 1: an iteration is either prompts (whole, as many as fit) or one token of every running sequence;
/// prompts go first. When blocks run out, the sequence that came last is preempted. In a pipeline each batch under way has its
/// share of the sequences.
class PrefillFirst final : public Scheduler {
  public:
    struct Parameters {
        Preemption preemption = Preemption::recompute;
        void describe(Fields& fields) {
            fields.enumeration({"preemption", "treatment of a sequence that loses its blocks"}, {"recompute", "swap"},
                               preemption);
        }
    };
    explicit PrefillFirst(const Parameters& own) : preemption_(own.preemption) {}
    [[nodiscard]] bool takes_whole_prompts() const override { return true; }
    [[nodiscard]] SchedulerNeeds needs() const override { return {.swaps = true}; }
    void plan(EngineState& state, Batch& batch) override;

  private:
    [[nodiscard]] static bool plan_prompts(EngineState& state, Batch& batch);
    void plan_decodes(EngineState& state, Batch& batch) const;
    Preemption preemption_;
};

}  // namespace

void PrefillFirst::plan(EngineState& state, Batch& batch) {
    // What comes from another replica with its cache has no prompt to compute: it takes its next token with those that run.
    state.admit_arrived();
    // Swapped sequences come before new prompts, but not before who waits with blocks: these come back by its going on.
    const bool holds = !state.waiting.empty() && state.sequence(state.waiting.front()).blocks > 0;
    if ((!state.swapped.empty() && !holds) || !plan_prompts(state, batch)) {
        plan_decodes(state, batch);
    }
}

bool PrefillFirst::plan_prompts(EngineState& state, Batch& batch) {
    const EngineLimits& limits = state.limits();
    const auto spare = static_cast<std::uint64_t>(std::ceil(limits.watermark * static_cast<double>(limits.blocks)));
    std::uint64_t tokens = 0;
    while (!state.waiting.empty() && state.has_place() && batch.items.size() < state.batch_share()) {
        const std::uint32_t index = state.waiting.front();
        const std::uint32_t prompt = state.claim_prefix(index);
        // A prompt beyond the budget runs alone: it could never run otherwise, and the engine itself would refuse it. A run tells
        // how many there were.
        if (!batch.empty() && tokens + prompt > limits.token_budget) {
            state.forget_prefix(index);
            break;
        }
        const bool alone = state.running.empty();
        if (!state.schedule(index, prompt, batch, alone ? 0 : spare)) {
            break;
        }
        state.admit_front();
        state.lone_prompts += prompt > limits.token_budget ? 1 : 0;
        tokens += prompt;
    }
    return !batch.empty();
}

void PrefillFirst::plan_decodes(EngineState& state, Batch& batch) const {
    const std::size_t most = state.batch_share();
    for (std::size_t place = 0; place < std::min(most, state.running.size());) {
        if (state.schedule(state.running[place], 1, batch)) {
            ++place;
            continue;
        }
        // Whoever came last gives way, in the end the sequence in work itself, unless who came after it is under way.
        const std::size_t last = state.running.size() - 1;
        if (last == place && state.in_flight() > 0) {
            break;
        }
        if (preemption_ == Preemption::recompute || !state.swap_out(last, batch)) {
            state.recompute_later(last);
        }
    }
    swap_back(state, batch);
}

extern const PolicyRow<Scheduler> kPrefillFirst = policy_row<Scheduler, PrefillFirst>(
    "vllm-v0", "whole prompts first, otherwise one token of every running sequence (vLLM 0)");

}  // namespace orrery::serving
