#include "workloads/serving/schedulers/swap_back.hpp"

#include "sim/base/error.hpp"

namespace orrery::serving {

void swap_back(EngineState& state, Batch& batch) {
    const std::size_t most = state.batch_share();
    const std::uint32_t step = state.blocks_for(1 + std::uint64_t{state.limits().draft_tokens});
    while (!state.swapped.empty() && state.has_place() && batch.items.size() < most) {
        // Room for one token of every running sequence stays free, or it would be swapped out again at once.
        const std::uint64_t spare = state.used_blocks() == 0 ? 0 : state.running.size() + step;
        if (state.limits().swaps_in_behind) {
            if (!state.swap_in_behind(spare)) {
                break;
            }
            continue;
        }
        if (!state.swap_in(spare, batch)) {
            break;
        }
        const bool fits = state.schedule(state.running.back(), 1, batch);
        ORRERY_ASSERT(fits);
    }
}

}  // namespace orrery::serving
