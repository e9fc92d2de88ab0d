#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// Earliest deadline first (Liu and Layland, JACM 20(1), 1973) over waiting requests, otherwise as ChunkedPrefill: a request's
/// first token is due the later the longer its prompt is. A time that all have in common would change no order.
class EarliestDeadline final : public Scheduler {
  public:
    struct Parameters {
        double per_token =
            0;  ///< s from a request's arrival until its first token is due, for each token of the prompt
        void describe(Fields& fields) {
            fields.quantity({"deadline_per_token", "deadline of the first token after arrival, per token of the prompt",
                             false, 0, 1e3},
                            Dimension::time, per_token);
        }
    };
    explicit EarliestDeadline(const Parameters& own) : own_(own) {}

    void plan(EngineState& state, Batch& batch) override {
        if (sorted_ != state.enqueued()) {
            const auto due = [&](const Sequence& sequence) {
                return sequence.arrival.seconds() + own_.per_token * sequence.prompt;
            };
            std::stable_sort(state.waiting.begin(), state.waiting.end(), [&](std::uint32_t a, std::uint32_t b) {
                const Sequence& x = state.sequence(a);
                const Sequence& y = state.sequence(b);
                // Who holds blocks already (a cache from another replica) must be able to go on.
                if ((x.blocks > 0) != (y.blocks > 0)) {
                    return x.blocks > 0;
                }
                return due(x) != due(y) ? due(x) < due(y) : x.id < y.id;
            });
            sorted_ = state.enqueued();
        }
        inner_.plan(state, batch);
    }

  private:
    Parameters own_;
    std::uint64_t sorted_ = 0;  ///< arrivals in the queue as of the last sorting
    ChunkedPrefill inner_;
};

}  // namespace

extern const PolicyRow<Scheduler> kEarliestDeadline = policy_row<Scheduler, EarliestDeadline>(
    "earliest-deadline", "chunked-prefill with the earliest first-token deadline first");

}  // namespace orrery::serving
