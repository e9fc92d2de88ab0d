#include "workloads/serving/engine/adapters.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

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
    if (const std::uint32_t slot = held_.find(adapter); slot != TierCache::kNone) {
        (void)held_.claim(slot);
        return coming_.contains(adapter) ? Answer::coming : Answer::here;
    }
    if (!has_slot()) {
        return Answer::full;
    }
    held_.trim(slots_ - held_.pinned() - 1);
    (void)held_.publish(adapter);
    coming_.insert(adapter);
    return Answer::taken;
}

void AdapterSlots::loaded(std::uint32_t adapter) {
    ORRERY_ASSERT(held_.find(adapter) != TierCache::kNone);
    const std::size_t came = coming_.erase(adapter);
    ORRERY_ASSERT(came == 1);
}

void AdapterSlots::unpin(std::uint32_t adapter) {
    (void)held_.drop(held_.find(adapter));
}

}  // namespace orrery::serving
