#include "workloads/serving/engine/adapters.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::inline serving {

double adapter_bytes_per_rank(const ModelSpec& model, const AdapterSpec& adapters, std::int64_t tensor,
                              std::int64_t layers) {
    const auto t = static_cast<double>(tensor);
    const auto hidden = static_cast<double>(model.hidden);
    const double q = model.q_width() / t;
    const double kv = model.kv_width() / static_cast<double>(std::min(tensor, model.kv_heads));
    // Values a unit of rank: both factors of queries, keys and values, then of the output.
    double width = 3 * hidden + q + 2 * kv + q + hidden;
    if (adapters.targets == AdapterTargets::all) {
        const double ffn = static_cast<double>(model.ffn) / t;
        const double dense =
            static_cast<double>(model.layers - model.expert_layers()) / static_cast<double>(model.layers);
        width += dense * ((model.gated ? 2 : 1) * (hidden + ffn) + ffn + hidden);
    }
    return 2 * static_cast<double>(adapters.rank) * width * static_cast<double>(layers);
}

AdapterSlots::Answer AdapterSlots::pin(std::uint32_t adapter) {
    if (const auto found = held_.find(adapter); found != held_.end()) {
        Slot& slot = found->second;
        if (slot.users++ == 0) {
            idle_.erase(slot.released);
        }
        return slot.here ? Answer::here : Answer::coming;
    }
    if (!has_slot()) {
        return Answer::full;
    }
    if (held_.size() == slots_) {
        held_.erase(idle_.begin()->second);
        idle_.erase(idle_.begin());
    }
    held_[adapter].users = 1;
    return Answer::taken;
}

void AdapterSlots::loaded(std::uint32_t adapter) {
    Slot& slot = held_.at(adapter);
    ORRERY_ASSERT(slot.users > 0 && !slot.here);
    slot.here = true;
}

void AdapterSlots::unpin(std::uint32_t adapter) {
    Slot& slot = held_.at(adapter);
    ORRERY_ASSERT(slot.users > 0);
    if (--slot.users == 0) {
        slot.released = releases_++;
        idle_.emplace(slot.released, adapter);
    }
}

}  // namespace orrery::inline serving
