#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery {

bool InFlight::waits(const EngineState& state, std::uint32_t decoding) {
    std::uint64_t tokens = decoding;
    for (const std::uint32_t index : state.waiting) {
        tokens += state.sequence(index).left_to_prefill();
    }
    const bool few = static_cast<double>(tokens) < wait_share_ * state.limits().token_budget;
    if (decoding > 0 && few && waited_ < wait_iterations_) {
        ++waited_;
        return true;
    }
    waited_ = 0;
    return false;
}

void InFlight::plan(EngineState& state, Batch& batch) {
    for (const std::uint32_t index : state.running) {
        const bool fits = state.schedule(index, 1, batch);
        ORRERY_ASSERT(fits);
    }
    const auto decoding = static_cast<std::uint32_t>(state.running.size());
    if (state.waiting.empty() || (wait_iterations_ > 0 && waits(state, decoding))) {
        return;
    }
    const EngineLimits& limits = state.limits();
    std::uint64_t tokens = decoding;
    while (!state.waiting.empty() && state.running.size() < limits.max_sequences) {
        const std::uint32_t index = state.waiting.front();
        const Sequence& sequence = state.sequence(index);
        const std::uint32_t prompt = sequence.left_to_prefill();
        // A prompt beyond the budget runs alone: it could never run otherwise.
        if (!batch.empty() && tokens + prompt > limits.token_budget) {
            break;
        }
        if (!state.reserve(index, whole_of(state, sequence))) {
            break;
        }
        const bool fits = state.schedule(index, prompt, batch);
        ORRERY_ASSERT(fits);
        state.admit_front();
        tokens += prompt;
    }
}

}  // namespace orrery
