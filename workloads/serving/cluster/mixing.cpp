#include "workloads/serving/cluster/mixing.hpp"

#include "sim/base/error.hpp"

namespace orrery::serving {

namespace {

// Whether a prompt joins a queue in which others wait, and all together are more than so many tokens.
bool prompts_exceed(const Replica& replica, std::uint64_t most, std::uint64_t tokens) {
    const EngineState& state = replica.state;
    if (state.waiting.empty()) {
        return false;
    }
    for (const std::uint32_t index : state.waiting) {
        tokens += state.sequence(index).left_to_prefill();
        if (tokens > most) {
            return true;
        }
    }
    return false;
}

}  // namespace

std::uint32_t Mixing::for_prompt(std::uint32_t chosen, const Request& request) const {
    const std::uint64_t most = spec_.prompt_tokens;
    if (most == 0 || fleet_[chosen].pool.role != Role::prefill ||
        !prompts_exceed(fleet_[chosen], most, request.prompt)) {
        return chosen;
    }
    std::uint32_t best = chosen;
    for (const std::uint32_t i : decoders_.replicas()) {
        const Replica& replica = fleet_[i];
        if (!replica.up || !replica.state.accepts(request) || prompts_exceed(replica, most, request.prompt)) {
            continue;
        }
        const auto rank = [&](const Replica& one) {
            return std::pair{one.state.foreign() == 0, one.state.used_blocks()};
        };
        if (best == chosen || rank(replica) < rank(fleet_[best])) {
            best = i;
        }
    }
    return best;
}

bool Mixing::keeps(std::uint32_t index, std::uint32_t id) {
    EngineState& state = fleet_[index].state;
    Sequence& sequence = state.sequence(id);
    const std::uint64_t whole = std::uint64_t{sequence.prompt} + sequence.output + sequence.then;
    if (kv_transfers_.under_way(index, id) || !kv_transfers_.decoders_are_full() || !state.reserve(id, whole)) {
        return false;
    }
    ORRERY_ASSERT(sequence.then > 0);
    sequence.output += sequence.then;
    sequence.then = 0;
    state.mark_foreign(id);
    return true;
}

}  // namespace orrery::serving
