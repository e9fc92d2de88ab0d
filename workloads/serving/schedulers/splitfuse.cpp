#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery {

void SplitFuse::plan(EngineState& state, Batch& batch) {
    std::uint32_t budget = state.limits().token_budget;
    const auto add = [&](bool decodes) {
        for (const std::uint32_t index : state.running) {
            const Sequence& sequence = state.sequence(index);
            const std::uint32_t tokens = sequence.decoding() ? 1 : std::min(budget, sequence.left_to_prefill());
            if (budget > 0 && sequence.decoding() == decodes && state.schedule(index, tokens, batch)) {
                budget -= tokens;
            }
        }
    };
    add(true);
    add(false);
    while (budget > 0 && !state.waiting.empty() && state.has_place()) {
        const std::uint32_t index = state.waiting.front();
        const std::uint32_t tokens = std::min(budget, state.sequence(index).left_to_prefill());
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

}  // namespace orrery
