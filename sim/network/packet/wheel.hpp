#pragma once
// Pending events of the packet engine: a timing wheel whose entries are entities (links, NICs), not packets.
//
// Claims: pops in the order (time, entity), whatever the order of insertion. Whether an entity has an entry already is its
// owner's business. What lies beyond the wheel's horizon (timers) waits in a binary heap.
// How it is fast: a slot holds a few events side by side, with their times, and is sorted when its turn comes. So nothing is
// chased through memory, and what the next events need can be fetched while one is handled (`ahead`). What is added to a
// slot whose turn has come goes to a heap of its own: traffic in step puts thousands of events into one instant.
// Timers have entities beyond 28 bits, which the wheel's keys have no room for: they wait in the heap, but for those of one kind, which
// mostly lie near (`insert_timer`).
// Source: Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987; here with a bitmap of full slots.
// Validated by tests/sim/network/packet_engine_test.cpp against a sorted list.

#include "sim/base/error.hpp"
#include "sim/base/huge_pages.hpp"
#include "sim/network/packet/key_sort.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace orrery::network::packet {

class Wheel {
  public:
    static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    static constexpr std::uint32_t kMostEntities = 1U << 27;
    static constexpr unsigned kEntityBits = 28;
    /// Timers of the kind that may be on the wheel: entities from here on, of fewer than kMostEntities indices.
    static constexpr std::uint32_t kNearTimers = 2U << kEntityBits;

    /// `entities`: how many may be on the wheel. `horizon_ps`: how far ahead most events lie.
    Wheel(std::uint32_t entities, std::int64_t horizon_ps) {
        ORRERY_ASSERT(entities < kMostEntities);
        // Busy links have an event each packet time, some eighth of a horizon: four slots an entity then hold few each.
        const std::uint64_t slots = std::bit_ceil(std::clamp<std::uint64_t>(entities / 2, 1U << 8, 1U << 16));
        while (static_cast<std::uint64_t>(horizon_ps) >> shift_ >= slots - 1 && shift_ < kTimeBits) {
            ++shift_;
        }
        mask_ = slots - 1;
        slots_.assign(slots, 0);
        bits_.assign(slots / 64, 0);
        summary_.assign((bits_.size() + 63) / 64, 0);
    }
    Wheel(Wheel&&) = default;
    Wheel& operator=(Wheel&&) = default;

    /// Adds an event. Precondition: `time` is not before the last event popped.
    [[gnu::always_inline]] void insert(std::uint32_t entity, std::int64_t time) {
        const std::uint64_t slot = static_cast<std::uint64_t>(time) >> shift_;
        if (slot - current_ - 1 >= mask_) [[unlikely]] {
            insert_here_or_far(entity, time);
            return;
        }
        put(slot & mask_, key_of(time, entity));
    }

    /// Adds an event of kNearTimers | index.
    void insert_timer(std::uint32_t index, std::int64_t time) {
        if (index < kMostEntities) [[likely]] {
            insert(kMostEntities | index, time);
        } else {
            insert_far(kNearTimers | index, time);
        }
    }

    /// Adds an event that is likely to lie beyond the horizon.
    [[gnu::noinline]] void insert_far(std::uint32_t entity, std::int64_t time) {
        far_.push_back({time, entity});
        std::push_heap(far_.begin(), far_.end(), later);
        far_first_ = far_.front().time;
        set_stop();
    }

    /// Time of the first event; kNever when there is none.
    [[nodiscard]] std::int64_t next_time() const {
        if (const std::uint64_t first = std::min(*next_, late_first_); first != kNoKey) {
            return std::min(far_first_, time_of(first));
        }
        const std::uint64_t index = first_slot();
        if (index == kNone64) {
            return far_first_;
        }
        std::uint64_t first = kNoKey;
        (void)each_chunk(index, [&](const std::uint64_t* from, const std::uint64_t* to) {
            first = std::min(first, *std::min_element(from, to));
        });
        return std::min(far_first_, time_of(number_of(index), first));
    }

    struct Pending {
        std::int64_t time = 0;  ///< ps
        std::uint32_t entity = 0;
    };
    static constexpr std::uint32_t kNobody = 0xFFFFFFFFU;

    /// From now on pop() removes events up to `limit`, ps.
    void set_limit(std::int64_t limit) {
        limit_ = limit;
        set_stop();
    }
    /// What an entity that was popped stands for: those on the wheel have 28 bits.
    [[nodiscard]] static std::uint32_t whole(std::uint32_t entity) {
        return entity - kMostEntities < kMostEntities ? kNearTimers | (entity - kMostEntities) : entity;
    }

    /// Removes the first event if it is not after the limit; else its entity is kNobody. Asks for `whole` above kMostEntities.
    [[nodiscard]] Pending pop() {
        return pop([] {});
    }
    /// The same; calls `look` when the next slot's turn has come, so that all of its events are `ahead`.
    template <class Look>
    [[nodiscard]] [[gnu::always_inline]] Pending pop(const Look& look) {
        const std::uint64_t key = *next_;
        if (key >= stop_) [[unlikely]] {
            return pop_rarer(look);
        }
        ++next_;
        return {time_of(key), entity_of(key)};
    }
    /// Takes the events of all entities that `takes` names off, in no particular order. Walks through all events.
    template <class Takes>
    void extract(const Takes& takes, std::vector<Pending>& out);

    /// The entity that is likely to be popped after so many others, fewer than kMostAhead; kMostEntities or more when that is not
    /// known.
    [[nodiscard]] std::uint32_t ahead(std::size_t others) const { return entity_of(next_[others]); }
    static constexpr std::size_t kMostAhead = 16;

    [[nodiscard]] std::size_t bytes() const {
        return (unsorted_.capacity() + sorted_.capacity() + late_.capacity()) * 8 + keys_.capacity() * 8 +
               slots_.capacity() * 4 + far_.capacity() * sizeof(Far);
    }

  private:
    static constexpr std::uint64_t kNone64 = ~0ULL;
    static constexpr std::uint64_t kNoKey = ~0ULL;  ///< after every key
    static constexpr unsigned kTimeBits = 64 - kEntityBits;
    static constexpr std::uint32_t kChunk = 16;  ///< two cache lines: the place of the next chunk, then keys
    struct Far {
        std::int64_t time;
        std::uint32_t entity;
    };
    static bool before(std::int64_t time_a, std::uint32_t a, std::int64_t time_b, std::uint32_t b) {
        return time_a < time_b || (time_a == time_b && a < b);
    }
    static bool later(const Far& a, const Far& b) { return before(b.time, b.entity, a.time, a.entity); }

    // Orders the events of one slot, whose times have all but their last bits in common: the last bits, then the entity.
    static std::uint64_t key_of(std::int64_t time, std::uint32_t entity) {
        return (static_cast<std::uint64_t>(time) << kEntityBits) | entity;
    }
    static std::uint32_t entity_of(std::uint64_t key) {
        return static_cast<std::uint32_t>(key & ((1ULL << kEntityBits) - 1));
    }
    [[nodiscard]] std::uint64_t first_bits(std::uint64_t slot) const {
        return (slot << shift_) & ~((1ULL << kTimeBits) - 1);
    }
    [[nodiscard]] std::int64_t time_of(std::uint64_t slot, std::uint64_t key) const {
        return static_cast<std::int64_t>(first_bits(slot) | (key >> kEntityBits));
    }
    // Of a key of the present slot.
    [[nodiscard]] std::int64_t time_of(std::uint64_t key) const {
        return static_cast<std::int64_t>(first_bits_ | (key >> kEntityBits));
    }
    // The number, counted from time 0, of the slot at this place.
    [[nodiscard]] std::uint64_t number_of(std::uint64_t index) const { return current_ + ((index - current_) & mask_); }

    [[gnu::always_inline]] void put(std::uint64_t index, std::uint64_t key) {
        std::uint32_t place = slots_[index];
        if (place % kChunk == 0) [[unlikely]] {
            place = add_chunk(index, place);
        }
        keys_[place] = key;
        slots_[index] = place + 1;
    }

    [[gnu::noinline]] void insert_here_or_far(std::uint32_t entity, std::int64_t time) {
        const std::uint64_t slot = static_cast<std::uint64_t>(time) >> shift_;
        if (slot == sorted_slot_) {
            late_.push_back(key_of(time, entity));
            std::push_heap(late_.begin(), late_.end(), std::greater<>());
            late_first_ = late_.front();
            set_stop();
        } else if (slot == current_) {
            put(slot & mask_, key_of(time, entity));
        } else {
            insert_far(whole(entity), time);
        }
    }

    // A chunk for a slot that has none, or whose last one is full: `before`. Returns the place of its first key.
    [[gnu::noinline]] std::uint32_t add_chunk(std::uint64_t index, std::uint32_t before) {
        std::uint32_t chunk = free_;
        if (chunk == 0) {
            ORRERY_ASSERT(keys_.size() <= 0xFFFFFFFFU - kChunk);
            chunk = static_cast<std::uint32_t>(keys_.size());
            keys_.resize(keys_.size() + kChunk);
        } else {
            free_ = static_cast<std::uint32_t>(keys_[chunk]);
        }
        keys_[chunk] = before == 0 ? 0 : before - kChunk;
        bits_[index >> 6] |= 1ULL << (index & 63);
        summary_[index >> 12] |= 1ULL << ((index >> 6) & 63);
        return chunk + 1;
    }

    // Calls `use` with the first and the end of each chunk's keys of a slot that has some, and returns the last chunk.
    template <class Use>
    std::uint32_t each_chunk(std::uint64_t index, const Use& use) const {
        std::uint32_t end = slots_[index];
        for (std::uint32_t chunk = (end - 1) / kChunk * kChunk;;) {
            use(&keys_[chunk + 1], &keys_[0] + end);
            const auto next = static_cast<std::uint32_t>(keys_[chunk]);
            if (next == 0) {
                return chunk;
            }
            chunk = next;
            end = chunk + kChunk;
        }
    }

    // The first event is of the next slot, came late, is a far one, or lies after the limit.
    template <class Look>
    [[gnu::noinline]] Pending pop_rarer(const Look& look) {
        if (*next_ == kNoKey && late_.empty()) {
            if (!sort_next()) {
                return pop_far();
            }
            look();
            if (const std::uint64_t first = *next_; first < stop_) [[likely]] {
                ++next_;
                return {time_of(first), entity_of(first)};
            }
        }
        const std::uint64_t key = std::min(*next_, late_first_);
        const std::int64_t at = time_of(key);
        if (far_first_ <= at && before(far_.front().time, far_.front().entity, at, whole(entity_of(key)))) {
            return pop_far();
        }
        if (at > limit_) {
            return {at, kNobody};
        }
        if (key == *next_) {
            ++next_;
        } else {
            std::pop_heap(late_.begin(), late_.end(), std::greater<>());
            late_.pop_back();
            late_first_ = late_.empty() ? kNoKey : late_.front();
            set_stop();
        }
        return {at, entity_of(key)};
    }

    // Takes the first full slot off the wheel and sorts it, unless another event or the limit comes before it.
    [[gnu::always_inline]] bool sort_next() {
        const std::uint64_t index = first_slot();
        if (index == kNone64) {
            return false;
        }
        const std::uint64_t slot = number_of(index);
        const auto begins = static_cast<std::int64_t>(slot << shift_);
        if (begins > limit_ || far_first_ < begins) {
            return false;
        }
        take_sorted(index);
        if ((bits_[index >> 6] &= ~(1ULL << (index & 63))) == 0) {
            summary_[index >> 12] &= ~(1ULL << ((index >> 6) & 63));
        }
        sorted_slot_ = current_ = slot;
        first_bits_ = first_bits(slot);
        set_stop();
        return true;
    }

    // The key of the present slot from which on events are not before `time`.
    [[nodiscard]] std::uint64_t key_from(std::int64_t time) const {
        const std::uint64_t since = static_cast<std::uint64_t>(time) - first_bits_;
        if (static_cast<std::uint64_t>(time) < first_bits_) {
            return 0;
        }
        return since >> kTimeBits == 0 ? since << kEntityBits : kNoKey;
    }
    // Sets the first key that pop() does not just take: events came late, are far ones, or lie after the limit.
    void set_stop() {
        stop_ = std::min(late_first_, key_from(std::min(far_first_, limit_ + (limit_ < kNever ? 1 : 0))));
    }

    // Keys of one slot, a few of them.
    void sort(const std::uint64_t* keys, std::size_t count) {
        if (shift_ + kEntityBits <= kNearBits) [[likely]] {
            sort_near(keys, count, sorted_.data());
        } else {
            sort_few(keys, count, sorted_.data());
        }
    }

    // Moves the keys of a slot to sorted_, in order.
    void take_sorted(std::uint64_t index) {
        const std::uint32_t newest = (slots_[index] - 1) / kChunk * kChunk;
        std::uint32_t last = newest;
        std::size_t count = slots_[index] - newest - 1;
        if (keys_[newest] == 0) [[likely]] {
            sort(&keys_[newest + 1], count);
        } else {
            count = 0;
            last = each_chunk(index, [&](const std::uint64_t* from, const std::uint64_t* to) {
                const auto more = static_cast<std::size_t>(to - from);
                if (sorted_.size() < count + more + kMostAhead) [[unlikely]] {
                    sorted_.resize(std::bit_ceil(count + more + kMostAhead));
                    unsorted_.resize(sorted_.size());
                }
                std::copy(from, to, unsorted_.data() + count);
                count += more;
            });
            if (count <= kFewKeys) {
                sort(unsorted_.data(), count);
            } else {
                sort_many(unsorted_.data(), count, sorted_.data());
            }
        }
        std::fill_n(sorted_.data() + count, kMostAhead, kNoKey);
        next_ = sorted_.data();
        keys_[last] = free_;
        free_ = newest;
        slots_[index] = 0;
    }

    // The place of the first full slot at or after the current one, going round.
    [[nodiscard]] std::uint64_t first_slot() const {
        const std::uint64_t start = current_ & mask_;
        const std::uint64_t word = start >> 6;
        if (const std::uint64_t here = bits_[word] & (~0ULL << (start & 63)); here != 0) {
            return (word << 6) | static_cast<unsigned>(std::countr_zero(here));
        }
        const std::uint64_t words = summary_.size();
        std::uint64_t group = word >> 6;
        std::uint64_t mask = (word & 63) == 63 ? 0 : ~0ULL << ((word & 63) + 1);
        for (std::uint64_t i = 0; i <= words; ++i) {
            if (const std::uint64_t full = summary_[group] & mask; full != 0) {
                const std::uint64_t found = (group << 6) | static_cast<unsigned>(std::countr_zero(full));
                return (found << 6) | static_cast<unsigned>(std::countr_zero(bits_[found]));
            }
            mask = ~0ULL;
            group = group + 1 == words ? 0 : group + 1;
        }
        return kNone64;
    }

    Pending pop_far() {
        if (far_.empty() || far_.front().time > limit_) {
            return {0, kNobody};
        }
        const Pending first{far_.front().time, far_.front().entity};
        std::pop_heap(far_.begin(), far_.end(), later);
        far_.pop_back();
        far_first_ = far_.empty() ? kNever : far_.front().time;
        current_ = std::max(current_, static_cast<std::uint64_t>(first.time) >> shift_);
        set_stop();
        return first;
    }

    // Takes the chunks of a slot that has some off it, with their keys.
    void take_keys(std::uint64_t index, std::vector<std::uint64_t>& keys) {
        const std::uint32_t last = each_chunk(
            index, [&](const std::uint64_t* from, const std::uint64_t* to) { keys.insert(keys.end(), from, to); });
        keys_[last] = free_;
        free_ = (slots_[index] - 1) / kChunk * kChunk;
        slots_[index] = 0;
        if ((bits_[index >> 6] &= ~(1ULL << (index & 63))) == 0) {
            summary_[index >> 12] &= ~(1ULL << ((index >> 6) & 63));
        }
    }

    unsigned shift_ = 0;
    std::uint64_t mask_ = 0;
    std::uint64_t current_ = 0;            ///< slot of the last event popped, or of those that are sorted
    std::uint64_t sorted_slot_ = kNone64;  ///< slot of what is, or was last, in sorted_ and late_
    std::uint64_t first_bits_ = 0;         ///< of the times of that slot: those that keys do not hold
    std::vector<std::uint64_t> unsorted_ = std::vector<std::uint64_t>(2 * kChunk + kMostAhead);
    std::vector<std::uint64_t> sorted_ =
        std::vector<std::uint64_t>(unsorted_.size(), kNoKey);  ///< keys of that slot, then kNoKey
    const std::uint64_t* next_ = sorted_.data();               ///< the first of them that has not been popped
    std::vector<std::uint64_t> late_;                          ///< heap of keys that came when the slot's turn had come
    std::uint64_t late_first_ = kNoKey;
    /// Chunks of keys of slots, each behind the place of the slot's next chunk; the first chunk is never used. Few are in
    /// use, and the one freed last is taken first, so they stay in cache.
    HugeVector<std::uint64_t> keys_ = HugeVector<std::uint64_t>(kChunk, 0);
    HugeVector<std::uint32_t> slots_;     ///< where the next key of each goes; a multiple of kChunk: to a new chunk
    std::uint32_t free_ = 0;              ///< first chunk that is not in use; 0: none
    std::vector<std::uint64_t> bits_;     ///< one bit a slot: it is not empty
    std::vector<std::uint64_t> summary_;  ///< one bit a word of bits_
    std::vector<Far> far_;
    std::int64_t far_first_ = kNever;  ///< time of its first event
    std::int64_t limit_ = kNever;      ///< ps
    std::uint64_t stop_ = kNoKey;      ///< as set_stop() says
};

template <class Takes>
void Wheel::extract(const Takes& takes, std::vector<Pending>& out) {
    // Of the present slot: those in order stay so, with nothing but kNoKey behind them.
    std::uint64_t* kept = sorted_.data() + (next_ - sorted_.data());
    std::uint64_t* key = kept;
    for (; *key != kNoKey; ++key) {
        if (const std::uint32_t entity = whole(entity_of(*key)); takes(entity)) {
            out.push_back({time_of(*key), entity});
        } else {
            *kept++ = *key;
        }
    }
    std::fill(kept, key, kNoKey);
    std::erase_if(late_, [&](std::uint64_t late) {
        const std::uint32_t entity = whole(entity_of(late));
        const bool taken = takes(entity);
        if (taken) {
            out.push_back({time_of(late), entity});
        }
        return taken;
    });
    std::make_heap(late_.begin(), late_.end(), std::greater<>());
    late_first_ = late_.empty() ? kNoKey : late_.front();
    std::erase_if(far_, [&](const Far& far) {
        const bool taken = takes(far.entity);
        if (taken) {
            out.push_back({far.time, far.entity});
        }
        return taken;
    });
    std::make_heap(far_.begin(), far_.end(), later);
    far_first_ = far_.empty() ? kNever : far_.front().time;
    set_stop();
    std::vector<std::uint64_t> keys;
    for (std::uint64_t word = 0; word < bits_.size(); ++word) {
        for (std::uint64_t full = bits_[word]; full != 0; full &= full - 1) {
            const std::uint64_t index = (word << 6) | static_cast<unsigned>(std::countr_zero(full));
            const std::uint64_t slot = number_of(index);
            keys.clear();
            take_keys(index, keys);
            for (const std::uint64_t one : keys) {
                if (const std::uint32_t entity = whole(entity_of(one)); takes(entity)) {
                    out.push_back({time_of(slot, one), entity});
                } else {
                    put(index, one);
                }
            }
        }
    }
}

}  // namespace orrery::network::packet
