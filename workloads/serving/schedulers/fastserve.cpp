#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

/// FastServe (Wu et al., arXiv:2305.05920): levels of priority; a sequence joins at the level whose quantum covers its
/// prompt, sinks when it has used its quantum, and yields to higher levels every iteration. Yielding keeps its blocks as
/// long as there are any.
class FastServe final : public Scheduler {
  public:
    struct Parameters {
        std::int64_t levels = 6;
        std::int64_t first_quantum = 64;  ///< tokens that the highest level may compute
        void describe(Fields& fields) {
            fields.integer({"levels", "levels of priority", false, 1, 32}, levels);
            fields.integer({"first_quantum", "tokens of the highest level; doubles with each", false, 1, 1 << 20},
                           first_quantum);
        }
    };
    explicit FastServe(const Parameters& own)
        : levels_(static_cast<std::uint32_t>(own.levels)),
          first_quantum_(static_cast<std::uint32_t>(own.first_quantum)) {}
    void plan(EngineState& state, Batch& batch) override;
    void after(EngineState& state, const Batch& batch) override;

  private:
    [[nodiscard]] double quantum(std::uint32_t level) const;
    /// Takes the blocks of the lowest running sequence below `index` that does not compute now; false when there is none.
    static bool give_way(EngineState& state, const Batch& batch, std::uint32_t index);
    std::uint32_t levels_;
    std::uint32_t first_quantum_;
};

}  // namespace

double FastServe::quantum(std::uint32_t level) const {
    return static_cast<double>(first_quantum_) * static_cast<double>(1ULL << level);
}

void FastServe::plan(EngineState& state, Batch& batch) {
    // A new sequence skips the levels whose quantum its prompt alone would use up.
    std::vector<std::uint32_t> candidates = state.running;
    for (const std::uint32_t index : state.waiting) {
        Sequence& sequence = state.sequence(index);
        while (sequence.generated == 0 && sequence.level + 1U < levels_ && quantum(sequence.level) < sequence.prompt) {
            ++sequence.level;
        }
        candidates.push_back(index);
    }
    std::stable_sort(candidates.begin(), candidates.end(), [&](std::uint32_t a, std::uint32_t b) {
        const Sequence& x = state.sequence(a);
        const Sequence& y = state.sequence(b);
        // Who waits with blocks (a cache from elsewhere) must be able to go on: nobody could take them away.
        const bool x_holds = x.stage == Stage::waiting && x.blocks > 0;
        const bool y_holds = y.stage == Stage::waiting && y.blocks > 0;
        if (x_holds != y_holds) {
            return x_holds;
        }
        return x.level != y.level ? x.level < y.level : x.id < y.id;
    });
    const std::size_t most = state.running.size() + state.places();
    if (candidates.size() > most) {
        candidates.resize(most);
    }
    const auto start = [&](std::uint32_t index) {
        const auto place = std::find(state.waiting.begin(), state.waiting.end(), index);
        if (place != state.waiting.end()) {
            state.waiting.erase(place);
            state.waiting.push_front(index);
            state.admit_front();
        }
    };
    std::uint32_t budget = state.limits().token_budget;
    for (const std::uint32_t index : candidates) {
        if (budget == 0) {
            return;
        }
        const Sequence& sequence = state.sequence(index);
        std::uint32_t tokens = 0;
        bool fits = false;
        do {
            const std::uint32_t left =
                sequence.stage == Stage::waiting ? state.claim_prefix(index) : sequence.left_to_prefill();
            tokens = std::min(budget, left);
            fits = state.schedule(index, tokens, batch);
        } while (!fits && give_way(state, batch, index));
        if (fits) {
            start(index);
            budget -= tokens;
        }
    }
}

bool FastServe::give_way(EngineState& state, const Batch& batch, std::uint32_t index) {
    const auto rank = [&](std::uint32_t i) { return std::pair{state.sequence(i).level, state.sequence(i).id}; };
    std::size_t victim = state.running.size();
    for (std::size_t i = 0; i < state.running.size(); ++i) {
        const std::uint32_t other = state.running[i];
        const bool computes = std::any_of(batch.items.begin(), batch.items.end(),
                                          [&](const BatchItem& item) { return item.sequence == other; });
        if (rank(other) > rank(index) && !computes &&
            (victim == state.running.size() || rank(other) > rank(state.running[victim]))) {
            victim = i;
        }
    }
    if (victim == state.running.size()) {
        return false;
    }
    state.recompute_later(victim);
    return true;
}

void FastServe::after(EngineState& state, const Batch& batch) {
    for (const BatchItem& item : batch.items) {
        Sequence& sequence = state.sequence(item.sequence);
        sequence.service += item.tokens;
        if (sequence.service >= quantum(sequence.level) && sequence.level + 1U < levels_) {
            sequence.service = 0;
            ++sequence.level;
        }
    }
}

extern const PolicyRow<Scheduler> kFastServe =
    policy_row<Scheduler, FastServe>("fastserve", "priority levels with quanta of tokens (FastServe)");

}  // namespace orrery::serving
