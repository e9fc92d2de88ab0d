#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// TensorRT-LLM's in-flight batching without chunks and without eviction: one token of every running sequence and whole
/// prompts, first come, first served, up to the token budget; room for the longest possible output is set aside at admission.
/// While others decode, prompts may wait for company (`batch_wait_timeout_iters` and `batch_wait_max_tokens_ratio` there).
class InFlight final : public Scheduler {
  public:
    struct Parameters {
        std::int64_t wait_iterations = 0;  ///< prompts wait so many iterations for company ...
        double wait_share = 0;             ///< ... until they and the decodes fill this share of the token budget
        void describe(Fields& fields) {
            fields.integer(
                {"wait_iterations", "iterations that a prompt waits for others to batch with", false, 0, 1 << 20},
                wait_iterations);
            fields.quantity({"wait_share", "share of the token budget that ends the wait", false, 0, 1},
                            Dimension::fraction, wait_share);
        }
    };
    explicit InFlight(const Parameters& own) : wait_iterations_(own.wait_iterations), wait_share_(own.wait_share) {}
    [[nodiscard]] bool takes_whole_outputs() const override { return true; }
    void plan(EngineState& state, Batch& batch) override;

  private:
    [[nodiscard]] bool waits(const EngineState& state, std::uint32_t decoding);
    std::int64_t wait_iterations_;
    double wait_share_;
    std::int64_t waited_ = 0;
};

}  // namespace

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
        // A prompt beyond the budget runs alone, once nothing else does: it could never run otherwise, and the engine itself would
        // refuse it. A run tells how many there were.
        if (!batch.empty() && tokens + prompt > limits.token_budget) {
            break;
        }
        if (!state.reserve(index, whole_of(state, sequence))) {
            break;
        }
        const bool fits = state.schedule(index, prompt, batch);
        ORRERY_ASSERT(fits);
        state.admit_front();
        state.lone_prompts += prompt > limits.token_budget ? 1 : 0;
        tokens += prompt;
    }
}

extern const PolicyRow<Scheduler> kInFlight = policy_row<Scheduler, InFlight>(
    "in-flight", "in-flight batching of whole prompts with room reserved for the longest output (TensorRT-LLM)");

}  // namespace orrery::serving
