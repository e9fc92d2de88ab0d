#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "workloads/serving/schedulers/swap_back.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace orrery::serving {

namespace {

/// Preemptive fairness over vLLM before version 1, as FastSwitch (Shen et al., arXiv:2411.18424) serves: every request has a
/// priority, and those of the highest priorities that fit hold the cache. Priorities change while requests run: so many times per
/// iteration all are drawn anew, but for those that keep theirs. Then who is no longer among the first is swapped out, and
/// comes back when its turn comes. An iteration is either whole prompts or one token of every running sequence.
class PriorityOrder final : public Scheduler {
  public:
    struct Parameters {
        double updates = 0.02;
        double keeps = 0;
        void describe(Fields& fields) {
            fields.number({"updates", "times per iteration that priorities change", false, 1e-6, 1}, updates);
            fields.quantity({"keeps", "chance of a request to keep its priority then", false, 0, 1},
                            Dimension::fraction, keeps);
        }
    };
    explicit PriorityOrder(const Parameters& own) : period_(1 / own.updates), keeps_(own.keeps) {}
    [[nodiscard]] bool takes_whole_prompts() const override { return true; }
    [[nodiscard]] SchedulerNeeds needs() const override { return {.swaps = true}; }
    void plan(EngineState& state, Batch& batch) override;
    void after(EngineState&, const Batch&) override { ++iterations_; }

  private:
    void update(EngineState& state);
    void order(EngineState& state) const;
    static void preempt_others(EngineState& state, Batch& batch);
    [[nodiscard]] static bool plan_prompts(EngineState& state, Batch& batch);
    static void plan_decodes(EngineState& state, Batch& batch);

    double period_;  ///< iterations
    double keeps_;
    std::uint64_t iterations_ = 0;
    std::uint64_t updates_ = 0;
};

// A priority is in Sequence::service, above 0; 0: not drawn yet.
bool before(const EngineState& state, std::uint32_t a, std::uint32_t b) {
    const Sequence& x = state.sequence(a);
    const Sequence& y = state.sequence(b);
    return x.service != y.service ? x.service > y.service : x.id < y.id;
}

void set_aside(EngineState& state, std::uint32_t index, Batch& batch) {
    const auto found = std::find(state.running.begin(), state.running.end(), index);
    const auto place = static_cast<std::size_t>(found - state.running.begin());
    if (!state.swap_out(place, batch)) {
        state.recompute_later(place);
    }
}

}  // namespace

void PriorityOrder::update(EngineState& state) {
    const auto due = static_cast<std::uint64_t>(static_cast<double>(iterations_) / period_);
    const bool change = due > updates_;
    updates_ = due;
    const auto draw = [&](std::uint32_t index) {
        Sequence& sequence = state.sequence(index);
        if (!change && sequence.service > 0) {
            return;
        }
        // By request and time alone, so that what runs beside it changes nothing.
        RandomStream random(mix64(state.limits().seed ^ mix64(sequence.id ^ mix64(updates_))), "serving/priorities");
        const bool stays = sequence.service > 0 && random.uniform() < keeps_;
        const double drawn = 1 - random.uniform();
        sequence.service = stays ? sequence.service : drawn;
    };
    for (const auto* queue : {&state.waiting, &state.swapped}) {
        for (const std::uint32_t index : *queue) {
            draw(index);
        }
    }
    for (const std::uint32_t index : state.running) {
        draw(index);
    }
}

void PriorityOrder::order(EngineState& state) const {
    std::sort(state.waiting.begin(), state.waiting.end(), [&](std::uint32_t a, std::uint32_t b) {
        // Who holds blocks already must be able to go on.
        const bool holds = state.sequence(a).blocks > 0;
        return holds != (state.sequence(b).blocks > 0) ? holds : before(state, a, b);
    });
    std::sort(state.swapped.begin(), state.swapped.end(),
              [&](std::uint32_t a, std::uint32_t b) { return before(state, a, b); });
}

// Of all that could run, the first that fit may stay.
void PriorityOrder::preempt_others(EngineState& state, Batch& batch) {
    std::vector<std::uint32_t> all(state.running.begin(), state.running.end());
    std::uint64_t room = state.free_blocks();
    for (const std::uint32_t index : state.running) {
        room += state.sequence(index).blocks;
    }
    std::size_t places = state.places() + state.running.size();
    all.insert(all.end(), state.swapped.begin(), state.swapped.end());
    std::copy_if(state.waiting.begin(), state.waiting.end(), std::back_inserter(all),
                 [&](std::uint32_t index) { return state.sequence(index).blocks == 0; });
    std::sort(all.begin(), all.end(), [&](std::uint32_t a, std::uint32_t b) { return before(state, a, b); });
    bool full = false;
    for (const std::uint32_t index : all) {
        const Sequence& sequence = state.sequence(index);
        const std::uint64_t wanted = state.blocks_for(std::uint64_t{sequence.needed()} + 1);
        full = full || wanted > room || places == 0;
        if (!full) {
            room -= wanted;
            --places;
        } else if (sequence.stage == Stage::running) {
            set_aside(state, index, batch);
        }
    }
}

void PriorityOrder::plan(EngineState& state, Batch& batch) {
    state.admit_arrived();
    const std::uint64_t updates = updates_;
    update(state);
    if (updates_ != updates) {
        preempt_others(state, batch);
    }
    order(state);
    const bool prompts =
        !state.waiting.empty() && (state.swapped.empty() || state.sequence(state.waiting.front()).blocks > 0 ||
                                   before(state, state.waiting.front(), state.swapped.front()));
    if (!prompts || !plan_prompts(state, batch)) {
        plan_decodes(state, batch);
        swap_back(state, batch);
    }
}

bool PriorityOrder::plan_prompts(EngineState& state, Batch& batch) {
    const EngineLimits& limits = state.limits();
    const auto spare = static_cast<std::uint64_t>(std::ceil(limits.watermark * static_cast<double>(limits.blocks)));
    std::uint64_t tokens = 0;
    while (!state.waiting.empty() && state.has_place() && batch.items.size() < state.batch_share()) {
        const std::uint32_t index = state.waiting.front();
        if (state.sequence(index).blocks == 0 && !state.swapped.empty() &&
            before(state, state.swapped.front(), index)) {
            break;
        }
        const std::uint32_t prompt = state.claim_prefix(index);
        // A prompt beyond the budget runs alone: it could never run otherwise, and the engine itself would refuse it. A run tells
        // how many there were.
        if (!batch.empty() && tokens + prompt > limits.token_budget) {
            state.forget_prefix(index);
            break;
        }
        if (!state.schedule(index, prompt, batch, state.running.empty() ? 0 : spare)) {
            break;
        }
        state.admit_front();
        state.lone_prompts += prompt > limits.token_budget ? 1 : 0;
        tokens += prompt;
    }
    return !batch.empty();
}

void PriorityOrder::plan_decodes(EngineState& state, Batch& batch) {
    std::vector<std::uint32_t> order(state.running.begin(), state.running.end());
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return before(state, a, b); });
    const std::size_t most = state.batch_share();
    for (std::size_t place = 0; place < std::min(most, order.size());) {
        if (state.schedule(order[place], 1, batch)) {
            ++place;
            continue;
        }
        // Whoever is last gives way, in the end the sequence in work itself, unless others are under way.
        const std::uint32_t last = order.back();
        if (last == order[place] && state.in_flight() > 0) {
            break;
        }
        order.pop_back();
        set_aside(state, last, batch);
    }
}

extern const PolicyRow<Scheduler> kPriority = policy_row<Scheduler, PriorityOrder>(
    "priority", "preemptive priorities: requests of the highest priorities hold the cache, others are swapped out");

}  // namespace orrery::serving
