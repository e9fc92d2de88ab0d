#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// Orca (Yu et al., OSDI 2022): first come, first served, every iteration; room for the longest possible output is set
/// aside at admission, prompts and decodes share an iteration. In a pipeline each batch under way has its share of the sequences.
class Orca final : public Scheduler {
  public:
    using Parameters = NoParameters;
    explicit Orca(const Parameters&) {}
    [[nodiscard]] bool takes_whole_outputs() const override { return true; }
    [[nodiscard]] SchedulerNeeds needs() const override { return {.counts_tokens = false}; }
    void plan(EngineState& state, Batch& batch) override;
};

}  // namespace

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

extern const PolicyRow<Scheduler> kOrca = policy_row<Scheduler, Orca>(
    "orca", "batch chosen at every iteration, first come, first served, with room for the longest output (Orca)");

}  // namespace orrery::serving
