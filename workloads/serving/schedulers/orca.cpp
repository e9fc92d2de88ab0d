#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery {

void Orca::plan(EngineState& state, Batch& batch) {
    const std::size_t most = state.batch_share();
    while (!state.waiting.empty() && state.has_place() && state.running.size() < most) {
        const std::uint32_t index = state.waiting.front();
        const Sequence& sequence = state.sequence(index);
        (void)state.claim_prefix(index);
        if (!state.reserve(index, whole_of(state, sequence))) {
            break;
        }
        state.admit_front();
    }
    for (std::size_t place = 0; place < std::min(most, state.running.size()); ++place) {
        const std::uint32_t index = state.running[place];
        const Sequence& sequence = state.sequence(index);
        const bool fits = state.schedule(index, sequence.decoding() ? 1 : sequence.left_to_prefill(), batch);
        ORRERY_ASSERT(fits);
    }
}

}  // namespace orrery
