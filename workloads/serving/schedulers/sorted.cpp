#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery {

void Sorted::plan(EngineState& state, Batch& batch) {
    if (sorted_ != state.enqueued()) {
        const auto profile = [&](const Sequence& sequence) {
            return decode_heavy_ ? static_cast<double>(sequence.prompt) / sequence.output : sequence.needed();
        };
        std::stable_sort(state.waiting.begin(), state.waiting.end(), [&](std::uint32_t a, std::uint32_t b) {
            const Sequence& x = state.sequence(a);
            const Sequence& y = state.sequence(b);
            // Who holds blocks already (a cache from another replica) must be able to go on.
            if ((x.blocks > 0) != (y.blocks > 0)) {
                return x.blocks > 0;
            }
            const double p = profile(x);
            const double q = profile(y);
            return p != q ? p < q : x.id < y.id;
        });
        sorted_ = state.enqueued();
    }
    inner_.plan(state, batch);
}

}  // namespace orrery
