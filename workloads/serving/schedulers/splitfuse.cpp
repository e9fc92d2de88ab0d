#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// Dynamic SplitFuse (Holmes et al., "DeepSpeed-FastGen", arXiv:2401.08671): decodes first, then long prompts are split and
/// short ones put together so that an iteration has exactly the token budget. A piece is also cut to the blocks that there are; a
/// sequence that finds none waits with what it has, and only when nothing at all can run who came last starts anew.
class SplitFuse final : public Scheduler {
  public:
    using Parameters = NoParameters;
    explicit SplitFuse(const Parameters&) {}
    void plan(EngineState& state, Batch& batch) override;
};

}  // namespace

void SplitFuse::plan(EngineState& state, Batch& batch) {
    std::uint32_t budget = state.limits().token_budget;
    const auto piece = [&](std::uint32_t index) {
        const Sequence& sequence = state.sequence(index);
        const std::uint64_t room = (sequence.blocks + state.free_blocks()) * state.limits().block - sequence.cached;
        return static_cast<std::uint32_t>(std::min<std::uint64_t>({budget, sequence.left_to_prefill(), room}));
    };
    const auto add = [&](bool decodes) {
        for (const std::uint32_t index : state.running) {
            const Sequence& sequence = state.sequence(index);
            const std::uint32_t tokens = piece(index);
            if (tokens > 0 && sequence.decoding() == decodes && state.schedule(index, tokens, batch)) {
                budget -= std::min(budget, state.budget_for(index, tokens));
            }
        }
    };
    add(true);
    add(false);
    while (budget > 0 && !state.waiting.empty() && state.has_place()) {
        const std::uint32_t index = state.waiting.front();
        (void)state.claim_prefix(index);
        const std::uint32_t tokens = piece(index);
        if (tokens == 0) {
            state.forget_prefix(index);
            break;
        }
        if (!state.schedule(index, tokens, batch)) {
            break;
        }
        state.admit_front();
        budget -= tokens;
    }
    if (batch.empty() && !state.running.empty() && state.in_flight() == 0) {
        state.recompute_later(state.running.size() - 1);
    }
}

extern const PolicyRow<Scheduler> kSplitFuse = policy_row<Scheduler, SplitFuse>(
    "splitfuse", "decodes, then prompts split and joined to exactly the budget (DeepSpeed-FastGen)");

}  // namespace orrery::serving
