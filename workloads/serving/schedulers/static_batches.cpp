#include "workloads/serving/schedulers/policies.hpp"

namespace orrery::serving {

namespace {

/// FasterTransformer: batches are formed once and run until their longest sequence ends; in a pipeline one for each stage.
class StaticBatches final : public Scheduler {
  public:
    using Parameters = NoParameters;
    explicit StaticBatches(const Parameters&) {}
    [[nodiscard]] bool takes_whole_outputs() const override { return true; }
    [[nodiscard]] SchedulerNeeds needs() const override { return {.counts_tokens = false}; }
    void plan(EngineState& state, Batch& batch) override;

  private:
    std::vector<std::uint32_t> formed_;  ///< sequences that each batch had when it was formed
};

}  // namespace

void StaticBatches::plan(EngineState& state, Batch& batch) {
    if (state.running.empty()) {
        formed_.push_back(0);
        while (!state.waiting.empty() && state.has_place() && formed_.back() < state.batch_places()) {
            const std::uint32_t index = state.waiting.front();
            Sequence& sequence = state.sequence(index);
            (void)state.claim_prefix(index);
            // All outputs are as long as the longest may be: room for the whole of each is taken at once.
            if (!state.reserve(index, whole_of(state, sequence))) {
                break;
            }
            sequence.group = static_cast<std::uint32_t>(formed_.size() - 1);
            state.admit_front();
            ++formed_.back();
        }
        if (formed_.back() == 0) {
            formed_.pop_back();
            return;
        }
    }
    const std::uint32_t group = state.sequence(state.running.front()).group;
    for (const std::uint32_t index : state.running) {
        const Sequence& sequence = state.sequence(index);
        if (sequence.group == group) {
            const bool fits = state.schedule(index, sequence.decoding() ? 1 : sequence.left_to_prefill(), batch);
            ORRERY_ASSERT(fits);
        }
    }
    batch.padded = formed_[group] - static_cast<std::uint32_t>(batch.items.size());
}

extern const PolicyRow<Scheduler> kStaticBatches = policy_row<Scheduler, StaticBatches>(
    "static", "batches formed once, run until their longest sequence ends (FasterTransformer)");

}  // namespace orrery::serving
