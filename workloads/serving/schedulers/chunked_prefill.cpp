#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery {

void ChunkedPrefill::plan(EngineState& state, Batch& batch) {
    std::uint32_t budget = state.limits().token_budget;
    bool preempted = false;
    for (std::size_t place = 0; place < state.running.size() && budget > 0;) {
        const Sequence& sequence = state.sequence(state.running[place]);
        const std::uint32_t tokens = sequence.decoding() ? 1 : std::min(budget, sequence.left_to_prefill());
        if (state.schedule(state.running[place], tokens, batch)) {
            budget -= tokens;
            ++place;
        } else {
            state.recompute_later(state.running.size() - 1);
            preempted = true;
        }
    }
    while (!preempted && budget > 0 && !state.waiting.empty() && state.running.size() < state.limits().max_sequences) {
        const std::uint32_t index = state.waiting.front();
        const std::uint32_t tokens = std::min(budget, state.sequence(index).left_to_prefill());
        if (!state.schedule(index, tokens, batch)) {
            break;
        }
        state.admit_front();
        budget -= tokens;
    }
}

}  // namespace orrery
