#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// Waiting requests by what they will need, for work whose lengths are known beforehand (batches, offline); otherwise as
/// ChunkedPrefill. Shortest first: by tokens of the prompt, the least mean wait. Decode-heavy first: by prompt over output, so
/// that long outputs overlap all the others and prompts, which come later, fill the compute that decoding leaves (the resource
/// profiles of Zhao et al., "BlendServe", arXiv:2411.16102, without its sharing of prefixes).
class Sorted : public Scheduler {
  public:
    explicit Sorted(bool decode_heavy) : decode_heavy_(decode_heavy) {}
    void plan(EngineState& state, Batch& batch) override;

  private:
    bool decode_heavy_;
    std::uint64_t sorted_ = 0;  ///< arrivals in the queue as of the last sorting
    ChunkedPrefill inner_;
};

class ShortestFirst final : public Sorted {
  public:
    using Parameters = NoParameters;
    explicit ShortestFirst(const Parameters&) : Sorted(false) {}
};

class DecodeHeavy final : public Sorted {
  public:
    using Parameters = NoParameters;
    explicit DecodeHeavy(const Parameters&) : Sorted(true) {}
};

}  // namespace

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

extern const PolicyRow<Scheduler> kShortestFirst =
    policy_row<Scheduler, ShortestFirst>("shortest-first", "chunked-prefill with the shortest waiting prompt first");
extern const PolicyRow<Scheduler> kDecodeHeavy =
    policy_row<Scheduler, DecodeHeavy>("decode-heavy", "chunked-prefill with the most output per prompt token first");

}  // namespace orrery::serving
