#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// Virtual token counters (Sheng et al., OSDI 2024): of the waiting requests, that of the session which has been served the
/// least goes first; a prompt token counts one, an output token two. Otherwise as ChunkedPrefill.
class FairShare final : public Scheduler {
  public:
    using Parameters = NoParameters;
    explicit FairShare(const Parameters&) {}
    [[nodiscard]] SchedulerNeeds needs() const override { return {.sessions = true}; }
    void plan(EngineState& state, Batch& batch) override;
    void after(EngineState& state, const Batch& batch) override;

  private:
    std::vector<double> served_;  ///< by session
    ChunkedPrefill inner_;
};

}  // namespace

void FairShare::plan(EngineState& state, Batch& batch) {
    std::uint32_t most = 0;
    for (const std::uint32_t index : state.waiting) {
        most = std::max(most, state.sequence(index).session);
    }
    if (served_.size() <= most) {
        // Who was away does not come back with credit: a new counter starts at the least of those in work.
        double least = -1;
        for (const std::uint32_t index : state.running) {
            const std::uint32_t session = state.sequence(index).session;
            if (session < served_.size() && (least < 0 || served_[session] < least)) {
                least = served_[session];
            }
        }
        served_.resize(std::size_t{most} + 1, std::max(0.0, least));
    }
    std::stable_sort(state.waiting.begin(), state.waiting.end(), [&](std::uint32_t a, std::uint32_t b) {
        // Who holds blocks already (a cache from another replica) must be able to go on.
        if ((state.sequence(a).blocks > 0) != (state.sequence(b).blocks > 0)) {
            return state.sequence(a).blocks > 0;
        }
        const double x = served_[state.sequence(a).session];
        const double y = served_[state.sequence(b).session];
        return x != y ? x < y : state.sequence(a).id < state.sequence(b).id;
    });
    inner_.plan(state, batch);
}

void FairShare::after(EngineState& state, const Batch& batch) {
    constexpr double kOutputWeight = 2;
    for (const BatchItem& item : batch.items) {
        const Sequence& sequence = state.sequence(item.sequence);
        const bool decode = item.tokens == 1 && sequence.generated > 1;
        served_[sequence.session] += decode ? kOutputWeight : item.tokens;
    }
}

extern const PolicyRow<Scheduler> kFairShare =
    policy_row<Scheduler, FairShare>("fair", "fair shares: the session served least goes first");

}  // namespace orrery::serving
