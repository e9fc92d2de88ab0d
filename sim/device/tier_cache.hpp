#pragma once
// What a fast memory of limited room keeps of a larger one: blocks of keys and values, experts, adapters, all by their keys.
//
// Claims: items of one size. What somebody uses is pinned to the first tier; what nobody uses stays there until room is needed. Then
// the item unused longest goes (LRU), or the one used least often since the beginning, of equals the one unused longest (LFU). Where
// there are lower tiers it moves down, which whoever owns the cache pays for (write-back), and each tier drops its own. An item is in
// one tier at a time: a copy in a lower tier is given up when the first gets it.
// Limits: two users that make the same item at once keep a copy each, as inference engines do; one of them is found later.
// Sources: Kwon et al., "PagedAttention", SOSP 2023; automatic prefix caching of vLLM 1; Qin et al., "Mooncake", FAST 2025 (tiers);
// Che, Tung and Wang, "Hierarchical web caching systems", IEEE JSAC 20(7), 2002 (the hit rate of LRU, in the tests).
// Validated by tests/sim/device/tier_cache_test.cpp and tests/workloads/serving_prefix_test.cpp (against a cache written down as a list).

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace orrery::device {

enum class Eviction { lru, lfu };

class TierCache {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

    /// Items that each tier below the first holds, from the fastest on; 0: no such tier.
    explicit TierCache(const std::vector<std::uint64_t>& below = {}, Eviction eviction = Eviction::lru);

    /// From now on `watcher` is told of each item that comes into the cache (`here`), and of each that leaves its last tier.
    void watch(std::function<void(std::uint64_t key, bool here)> watcher) { watcher_ = std::move(watcher); }

    /// The item with this key; kNone when it is in no tier.
    [[nodiscard]] std::uint32_t find(std::uint64_t key) const;
    /// 0: the first.
    [[nodiscard]] std::size_t tier(std::uint32_t item) const { return items_[item].tier; }

    /// One more user of an item of the first tier; true when it was idle.
    [[nodiscard]] bool claim(std::uint32_t item);
    /// One less; true when it is idle now.
    [[nodiscard]] bool drop(std::uint32_t item);
    /// The first tier has an item of this key now, with one user. kNone when it has one already.
    [[nodiscard]] std::uint32_t publish(std::uint64_t key);
    /// Idle items of the first tier beyond `most` leave it.
    void trim(std::uint64_t most);

    /// Items of the first tier that nobody uses, and those that somebody does.
    [[nodiscard]] std::uint64_t idle() const { return tiers_[0].count; }
    [[nodiscard]] std::uint64_t pinned() const { return pinned_; }
    /// Items that have moved down to a tier so far.
    [[nodiscard]] std::uint64_t moved(std::size_t tier) const { return tiers_[tier].moved; }

  private:
    struct Item {
        std::uint64_t key = 0;
        std::uint32_t users = 0;
        std::uint32_t before = kNone, after = kNone;  ///< in its list (LRU)
        std::uint32_t tier = 0;
        std::uint64_t since = 0;  ///< when nobody used it any more (LFU)
    };
    using Rank = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>;  ///< uses, since when, which
    struct Tier {
        std::uint64_t room = 0;  ///< of the tiers below the first
        std::uint64_t count = 0, moved = 0;
        std::uint32_t first = kNone, last = kNone;  ///< LRU: a list from the item unused longest on
        std::set<Rank> ranks;                       ///< LFU
    };
    [[nodiscard]] Rank rank(std::uint32_t item) const;
    [[nodiscard]] std::uint32_t victim(const Tier& tier) const;
    void append(std::uint32_t item, std::size_t tier);
    void unlink(std::uint32_t item);
    void move_down(std::uint32_t item);
    void count_use(std::uint64_t key);

    std::function<void(std::uint64_t, bool)> watcher_;
    Eviction eviction_;
    std::vector<Tier> tiers_;
    std::vector<Item> items_;
    std::vector<std::uint32_t> free_;
    std::unordered_map<std::uint64_t, std::uint32_t> by_key_;  ///< only looked up, never walked
    std::unordered_map<std::uint64_t, std::uint64_t> uses_;    ///< by key, for LFU
    std::uint64_t pinned_ = 0;
    std::uint64_t drops_ = 0;
};

}  // namespace orrery::device
