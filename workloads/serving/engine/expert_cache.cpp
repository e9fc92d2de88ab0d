#include "workloads/serving/engine/expert_cache.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"

#include <algorithm>

namespace orrery::serving {

ExpertCache::ExpertCache(const ExpertCacheSpec& spec, const Shape& shape, std::uint64_t seed, const std::string& name)
    : spec_(spec), shape_(shape), random_(seed, name), dram_({}, spec.eviction), loads_(shape.layers) {
    ORRERY_ASSERT(shape.topk >= 1 && shape.topk <= shape.count && spec.pinned <= spec.experts);
    double sum = 0;
    for (std::uint32_t k = 1; spec.skew > 0 && k <= shape.count; ++k) {
        sum += exp_pinned(-spec.skew * log_pinned(k));
        up_to_.push_back(sum);
    }
    mark_.assign(shape.count, 0);
    token_mark_.assign(shape.count, 0);
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
        caches_.emplace_back(std::vector<std::uint64_t>(), spec.eviction);
        // The first ones are the most popular. What has been published and is never dropped never goes.
        for (std::uint32_t expert = 0; expert < static_cast<std::uint32_t>(spec.pinned); ++expert) {
            (void)caches_[layer].publish(expert);
        }
    }
}

std::uint32_t ExpertCache::draw() {
    if (up_to_.empty()) {
        return static_cast<std::uint32_t>(random_.below(shape_.count));
    }
    const auto found = std::upper_bound(up_to_.begin(), up_to_.end(), random_.uniform() * up_to_.back());
    return static_cast<std::uint32_t>(std::min(found, std::prev(up_to_.end())) - up_to_.begin());
}

// The experts that the tokens of a layer need, each once, in the order in which they are first chosen.
void ExpertCache::choose(std::uint64_t tokens) {
    needed_.clear();
    ++layer_stamp_;
    for (std::uint32_t expert = 0; spec_.brings == Brings::layer && expert < shape_.count; ++expert) {
        needed_.push_back(expert);
    }
    for (std::uint64_t token = 0; token < tokens && needed_.size() < shape_.count; ++token) {
        ++token_stamp_;
        for (std::uint32_t k = 0; k < shape_.topk; ++k) {
            std::uint32_t expert = draw();
            while (token_mark_[expert] == token_stamp_) {
                expert = draw();
            }
            token_mark_[expert] = token_stamp_;
            if (mark_[expert] != layer_stamp_) {
                mark_[expert] = layer_stamp_;
                needed_.push_back(expert);
            }
        }
    }
}

void ExpertCache::take(std::uint32_t layer, std::uint32_t expert, LayerLoads::From& from) {
    if (shape_.host_experts == 0) {
        ++from.home;
        return;
    }
    const std::uint64_t key = std::uint64_t{layer} * shape_.count + expert;
    std::uint32_t item = dram_.find(key);
    if (item != TierCache::kNone) {
        ++from.dram;
        (void)dram_.claim(item);
    } else {
        ++from.home;
        dram_.trim(shape_.host_experts - 1);
        item = dram_.publish(key);
    }
    (void)dram_.drop(item);
}

// A missing expert comes ahead where the prediction names it; otherwise when it is needed, and another came ahead for nothing.
void ExpertCache::bring(std::uint32_t layer, std::uint32_t expert, LayerLoads& loads) {
    const bool named = spec_.prefetches && random_.uniform() < spec_.hit_rate;
    take(layer, expert, named ? loads.predicted : loads.demanded);
    predicted_ += named ? 1 : 0;
    if (!spec_.prefetches || named || needed_.size() == shape_.count) {
        return;
    }
    auto other = static_cast<std::uint32_t>(random_.below(shape_.count));
    while (mark_[other] == layer_stamp_) {
        other = static_cast<std::uint32_t>(random_.below(shape_.count));
    }
    if (caches_[layer].find(other) == TierCache::kNone) {
        take(layer, other, loads.predicted);
        ++in_vain_;
    }
}

const std::vector<LayerLoads>& ExpertCache::step(std::uint64_t tokens) {
    const auto places = static_cast<std::uint64_t>(spec_.experts);
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
        TierCache& cache = caches_[layer];
        LayerLoads& loads = loads_[layer];
        loads = LayerLoads();
        choose(tokens);
        missing_.clear();
        for (const std::uint32_t expert : needed_) {
            if (const std::uint32_t item = cache.find(expert); item != TierCache::kNone) {
                (void)cache.claim(item);
            } else {
                missing_.push_back(expert);
            }
        }
        used_ += needed_.size();
        hits_ += needed_.size() - missing_.size();
        for (const std::uint32_t expert : missing_) {
            bring(layer, expert, loads);
        }
        for (const std::uint32_t expert : missing_) {
            if (cache.pinned() < places) {
                cache.trim(places - cache.pinned() - 1);
                (void)cache.publish(expert);
            }
        }
        for (const std::uint32_t expert : needed_) {
            if (const std::uint32_t item = cache.find(expert); item != TierCache::kNone) {
                (void)cache.drop(item);
            }
        }
    }
    return loads_;
}

}  // namespace orrery::serving
