#include "sim/base/error.hpp"
#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::serving {

namespace {

/// Sarathi-Serve (Agrawal et al., OSDI 2024, algorithm 3): all decodes, then prompts that have begun, then new ones, cut to
/// what is left of the token budget. As in the block manager of vLLM 0, on which it was built, a prompt is admitted when the
/// whole of it has room beside the watermark. A sequence that comes with its cache decodes in the next iteration, whatever
/// prompts are under way (as machines of Splitwise's mixed pool do).
class Sarathi final : public Scheduler {
  public:
    using Parameters = NoParameters;
    explicit Sarathi(const Parameters&) {}
    [[nodiscard]] bool takes_whole_prompts() const override { return true; }
    void plan(EngineState& state, Batch& batch) override;
};

}  // namespace

void Sarathi::plan(EngineState& state, Batch& batch) {
    std::uint32_t budget = state.limits().token_budget;
    bool preempted = false;
    state.admit_arrived();
    // Decodes that do not fit make who came last give way, as in vLLM 0.
    for (std::size_t place = 0; place < state.running.size() && budget > 0;) {
        const std::uint32_t index = state.running[place];
        if (!state.sequence(index).decoding()) {
            ++place;
        } else if (state.schedule(index, 1, batch)) {
            budget -= std::min(budget, state.budget_for(index, 1));
            ++place;
        } else {
            preempted = true;
            if (place + 1 == state.running.size() && state.in_flight() > 0) {
                break;
            }
            state.recompute_later(state.running.size() - 1);
        }
    }
    for (const std::uint32_t index : state.running) {
        const Sequence& sequence = state.sequence(index);
        const std::uint32_t tokens = std::min(budget, sequence.left_to_prefill());
        if (tokens > 0 && !sequence.decoding() && state.schedule(index, tokens, batch)) {
            budget -= tokens;
        }
    }
    const EngineLimits& limits = state.limits();
    const auto spare = static_cast<std::uint64_t>(std::ceil(limits.watermark * static_cast<double>(limits.blocks)));
    while (!preempted && budget > 0 && !state.waiting.empty() && state.has_place()) {
        const std::uint32_t index = state.waiting.front();
        (void)state.claim_prefix(index);
        // Room for the whole prompt is taken at admission: its later pieces always fit.
        const Sequence& sequence = state.sequence(index);
        if (!state.reserve(index, std::uint64_t{sequence.needed()} + state.drafts(sequence) + state.beyond(sequence),
                           state.running.empty() && state.in_flight() == 0 ? 0 : spare)) {
            break;
        }
        const std::uint32_t tokens = std::min(budget, state.sequence(index).left_to_prefill());
        const bool fits = state.schedule(index, tokens, batch);
        ORRERY_ASSERT(fits);
        state.admit_front();
        budget -= tokens;
    }
}

extern const PolicyRow<Scheduler> kSarathi = policy_row<Scheduler, Sarathi>(
    "sarathi", "decodes, begun prompts, then new ones; whole prompts have room (Sarathi-Serve)");

}  // namespace orrery::serving
