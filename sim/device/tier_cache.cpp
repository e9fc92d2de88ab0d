#include "sim/device/tier_cache.hpp"

#include "sim/base/error.hpp"

namespace orrery::device {

TierCache::TierCache(const std::vector<std::uint64_t>& below, Eviction eviction)
    : eviction_(eviction), tiers_(1 + below.size()) {
    for (std::size_t i = 0; i < below.size(); ++i) {
        tiers_[i + 1].room = below[i];
    }
}

std::uint32_t TierCache::find(std::uint64_t key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? kNone : found->second;
}

bool TierCache::claim(std::uint32_t item) {
    ORRERY_ASSERT(items_[item].tier == 0);
    const bool was_idle = items_[item].users == 0;
    if (was_idle) {
        unlink(item);
        ++pinned_;
    }
    ++items_[item].users;
    count_use(items_[item].key);
    return was_idle;
}

bool TierCache::drop(std::uint32_t item) {
    ORRERY_ASSERT(items_[item].users > 0);
    const bool is_idle = --items_[item].users == 0;
    if (is_idle) {
        items_[item].since = ++drops_;
        ORRERY_ASSERT(pinned_ > 0);
        --pinned_;
        append(item, 0);
    }
    return is_idle;
}

std::uint32_t TierCache::publish(std::uint64_t key) {
    std::uint32_t item = find(key);
    if (item != kNone) {
        if (items_[item].tier == 0) {
            return kNone;
        }
        unlink(item);
    } else {
        if (free_.empty()) {
            free_.push_back(static_cast<std::uint32_t>(items_.size()));
            items_.emplace_back();
        }
        item = free_.back();
        free_.pop_back();
        by_key_[key] = item;
        if (watcher_) {
            watcher_(key, true);
        }
    }
    items_[item] = Item();
    items_[item].key = key;
    items_[item].users = 1;
    ++pinned_;
    count_use(key);
    return item;
}

void TierCache::trim(std::uint64_t most) {
    while (tiers_[0].count > most) {
        move_down(victim(tiers_[0]));
    }
}

void TierCache::move_down(std::uint32_t item) {
    std::size_t tier = items_[item].tier + std::size_t{1};
    unlink(item);
    while (tier < tiers_.size() && tiers_[tier].room == 0) {
        ++tier;
    }
    if (tier == tiers_.size()) {
        by_key_.erase(items_[item].key);
        free_.push_back(item);
        if (watcher_) {
            watcher_(items_[item].key, false);
        }
        return;
    }
    ORRERY_ASSERT(tiers_[tier].room > 0);
    ++tiers_[tier].moved;
    append(item, tier);
    if (tiers_[tier].count > tiers_[tier].room) {
        move_down(victim(tiers_[tier]));
    }
}

// Precondition: the item is in no tier's order, where its rank must not change.
void TierCache::count_use(std::uint64_t key) {
    if (eviction_ == Eviction::lfu) {
        ++uses_[key];
    }
}

TierCache::Rank TierCache::rank(std::uint32_t item) const {
    return {uses_.at(items_[item].key), items_[item].since, item};
}

std::uint32_t TierCache::victim(const Tier& tier) const {
    return eviction_ == Eviction::lfu ? std::get<2>(*tier.ranks.begin()) : tier.first;
}

void TierCache::append(std::uint32_t item, std::size_t number) {
    Tier& tier = tiers_[number];
    Item& it = items_[item];
    it.tier = static_cast<std::uint32_t>(number);
    ++tier.count;
    if (eviction_ == Eviction::lfu) {
        tier.ranks.insert(rank(item));
        return;
    }
    it.before = tier.last;
    it.after = kNone;
    (tier.last != kNone ? items_[tier.last].after : tier.first) = item;
    tier.last = item;
}

void TierCache::unlink(std::uint32_t item) {
    const Item& it = items_[item];
    Tier& tier = tiers_[it.tier];
    ORRERY_ASSERT(tier.count > 0);
    --tier.count;
    if (eviction_ == Eviction::lfu) {
        tier.ranks.erase(rank(item));
        return;
    }
    (it.before != kNone ? items_[it.before].after : tier.first) = it.after;
    (it.after != kNone ? items_[it.after].before : tier.last) = it.before;
}

}  // namespace orrery::device
