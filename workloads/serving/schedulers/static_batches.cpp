#include "workloads/serving/schedulers/policies.hpp"

namespace orrery {

void StaticBatches::plan(EngineState& state, Batch& batch) {
    if (state.running.empty()) {
        formed_ = 0;
        while (!state.waiting.empty() && state.running.size() < state.limits().max_sequences) {
            const std::uint32_t index = state.waiting.front();
            const Sequence& sequence = state.sequence(index);
            // All outputs are as long as the longest may be: room for the whole of each is taken at once.
            if (!state.reserve(index, std::uint64_t{sequence.prompt} + sequence.output)) {
                break;
            }
            state.admit_front();
            ++formed_;
        }
    }
    for (const std::uint32_t index : state.running) {
        const Sequence& sequence = state.sequence(index);
        const bool fits = state.schedule(index, sequence.decoding() ? 1 : sequence.left_to_prefill(), batch);
        ORRERY_ASSERT(fits);
    }
    batch.padded = formed_ - static_cast<std::uint32_t>(state.running.size());
}

}  // namespace orrery
