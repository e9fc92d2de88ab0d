#include "workloads/serving/engine/prefix_cache.hpp"

#include "sim/base/error.hpp"

namespace orrery::inline serving {

std::uint32_t PrefixCache::find(std::uint64_t key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? kNone : found->second;
}

bool PrefixCache::claim(std::uint32_t block) {
    ORRERY_ASSERT(blocks_[block].tier == Tier::device);
    const bool was_idle = blocks_[block].users++ == 0;
    if (was_idle) {
        unlink(block);
    }
    return was_idle;
}

bool PrefixCache::drop(std::uint32_t block) {
    ORRERY_ASSERT(blocks_[block].users > 0);
    const bool is_idle = --blocks_[block].users == 0;
    if (is_idle) {
        append(block, Tier::device);
    }
    return is_idle;
}

std::uint32_t PrefixCache::publish(std::uint64_t key) {
    std::uint32_t block = find(key);
    if (block != kNone) {
        if (blocks_[block].tier == Tier::device) {
            return kNone;
        }
        unlink(block);
    } else {
        if (free_.empty()) {
            free_.push_back(static_cast<std::uint32_t>(blocks_.size()));
            blocks_.emplace_back();
        }
        block = free_.back();
        free_.pop_back();
        by_key_[key] = block;
    }
    blocks_[block] = Block();
    blocks_[block].key = key;
    blocks_[block].users = 1;
    return block;
}

void PrefixCache::trim(std::uint64_t most) {
    while (lists_[0].count > most) {
        move_down(lists_[0].first);
    }
}

void PrefixCache::move_down(std::uint32_t block) {
    std::size_t tier = static_cast<std::size_t>(blocks_[block].tier) + 1;
    unlink(block);
    while (tier < room_.size() && room_[tier] == 0) {
        ++tier;
    }
    if (tier == room_.size()) {
        by_key_.erase(blocks_[block].key);
        free_.push_back(block);
        return;
    }
    ++moved_[tier];
    append(block, static_cast<Tier>(tier));
    if (lists_[tier].count > room_[tier]) {
        move_down(lists_[tier].first);
    }
}

void PrefixCache::append(std::uint32_t block, Tier tier) {
    List& list = lists_[static_cast<std::size_t>(tier)];
    Block& it = blocks_[block];
    it.tier = tier;
    it.before = list.last;
    it.after = kNone;
    (list.last != kNone ? blocks_[list.last].after : list.first) = block;
    list.last = block;
    ++list.count;
}

void PrefixCache::unlink(std::uint32_t block) {
    const Block& it = blocks_[block];
    List& list = lists_[static_cast<std::size_t>(it.tier)];
    (it.before != kNone ? blocks_[it.before].after : list.first) = it.after;
    (it.after != kNone ? blocks_[it.after].before : list.last) = it.before;
    --list.count;
}

}  // namespace orrery::inline serving
