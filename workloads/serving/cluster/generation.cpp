#include "workloads/serving/cluster/generation.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

void Generation::batch_ends(std::uint32_t index, const Batch& batch, SimTime now) {
    Replica& replica = fleet_[index];
    EngineState& state = replica.state;
    timeline_.batch_ends(state, batch, now);
    for (const BatchItem& item : batch.items) {
        Sequence& sequence = state.sequence(item.sequence);
        const std::uint32_t drafted = state.drafts(sequence);
        sequence.cached = item.context;
        ORRERY_ASSERT(sequence.cached <= sequence.needed());
        if (sequence.cached == sequence.needed() && !sequence.abandoned) {
            accounts_.token(sequence);
            for (std::uint32_t more = drafted > 0 ? accept(drafted, sequence) : 0; more > 0; --more) {
                ++sequence.cached;
                accounts_.token(sequence);
            }
        }
        state.name_blocks(item.sequence);
    }
    transfers_.shared.batch_ends(index);
    replica.scheduler->after(state, batch);
    retire(index);
    transfers_.make_room(index);
}

// Tokens of a draft that the model agrees with: those before the first that it does not.
std::uint32_t Generation::accept(std::uint32_t drafted, Sequence& sequence) {
    ++result_.decode_steps;
    std::uint32_t accepted = 0;
    if (speculation_.sampled) {
        while (accepted < drafted && drafts_.uniform() < speculation_.chance(accepted)) {
            ++accepted;
        }
    } else {
        double chance = 1;
        for (std::uint32_t i = 0; i < drafted; ++i) {
            chance *= speculation_.chance(i);
            sequence.credit += chance;
        }
        accepted = std::min(drafted, static_cast<std::uint32_t>(sequence.credit));
        sequence.credit -= accepted;
    }
    result_.accepted += accepted;
    return accepted;
}

// Takes from the running sequences those that have given all their tokens, or whose clients have gone.
void Generation::retire(std::uint32_t index) {
    EngineState& state = fleet_[index].state;
    std::size_t kept = 0;
    for (const std::uint32_t id : state.running) {
        const Sequence& sequence = state.sequence(id);
        if (sequence.abandoned && !transfers_.kv.under_way(index, id)) {
            state.finish(id);
        } else if (sequence.generated < sequence.output && !sequence.abandoned) {
            state.running[kept++] = id;
        } else if (sequence.then > 0) {
            if (mixing_.keeps(index, id)) {
                state.running[kept++] = id;
                ++result_.mixed_outputs;
            } else {
                transfers_.kv.prompt_done(index, id);
            }
        } else {
            result_.wrong += fleet_[index].corrupt ? 1 : 0;
            accounts_.answer(index, sequence);
            state.finish(id);
        }
    }
    state.running.resize(kept);
}

}  // namespace orrery::serving
