#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>
#include <utility>

namespace orrery::serving {

bool schedule_and_name(EngineState& state, std::uint32_t index, std::uint32_t tokens, Batch& batch) {
    if (!state.schedule(index, tokens, batch)) {
        return false;
    }
    Sequence& sequence = state.sequence(index);
    const std::uint32_t cached = std::exchange(sequence.cached, batch.items.back().context);
    state.name_blocks(index);
    sequence.cached = cached;
    return true;
}

void ChunkedPrefill::plan(EngineState& state, Batch& batch) {
    std::uint32_t budget = state.limits().token_budget;
    bool preempted = false;
    for (std::size_t place = 0; place < state.running.size() && budget > 0;) {
        const Sequence& sequence = state.sequence(state.running[place]);
        const std::uint32_t tokens = sequence.decoding() ? 1 : std::min(budget, sequence.left_to_prefill());
        const std::uint32_t used = state.budget_for(state.running[place], tokens);
        if (schedule_and_name(state, state.running[place], tokens, batch)) {
            budget -= std::min(budget, used);
            ++place;
        } else {
            preempted = true;
            // Who came after it may be under way: it keeps what it has, and they give way when they are back.
            if (place + 1 == state.running.size() && state.in_flight() > 0) {
                break;
            }
            state.recompute_later(state.running.size() - 1);
        }
    }
    while (!preempted && budget > 0 && !state.waiting.empty() && state.has_place()) {
        const std::uint32_t index = state.waiting.front();
        const std::uint32_t tokens = std::min(budget, state.claim_prefix(index));
        if (!schedule_and_name(state, index, tokens, batch)) {
            break;
        }
        state.admit_front();
        budget -= tokens;
    }
}

extern const PolicyRow<Scheduler> kChunkedPrefill =
    policy_row<Scheduler, ChunkedPrefill>("chunked-prefill", "decodes, then prompts cut to the token budget (vLLM 1)");

}  // namespace orrery::serving
