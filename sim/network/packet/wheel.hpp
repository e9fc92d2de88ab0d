#pragma once
// Pending events of the packet engine: a timing wheel whose entries are entities (links, NICs), not packets.
//
// Claims: pops in the order (time, entity), whatever the order of insertion. An entity on the wheel has at most one
// entry. What lies beyond the wheel's horizon (timers) waits in a binary heap, where an entity may have several entries.
// How it is fast: a slot holds some dozens of events side by side, with their times, and is sorted when its turn comes. So
// nothing is chased through memory, and what the next events need can be fetched while one is handled (`ahead`). What is
// added to a slot whose turn has come goes to a heap of its own: traffic in step puts thousands of events into one instant.
// Source: Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987; here with a bitmap of full slots.
// Validated by tests/sim/network/packet_engine_test.cpp against a sorted list.

#include "sim/base/error.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace orrery::inline network::packet {

class Wheel {
  public:
    static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    static constexpr std::uint32_t kMostEntities = 1U << 28;

    /// `entities`: how many may be on the wheel. `horizon_ps`: how far ahead most events lie.
    Wheel(std::uint32_t entities, std::int64_t horizon_ps) : pending_(entities, 0) {
        ORRERY_ASSERT(entities <= kMostEntities);
        // Busy links have an event each packet time, some eighth of a horizon: a slot of four entities then holds dozens.
        const std::uint64_t slots = std::bit_ceil(std::clamp<std::uint64_t>(entities / 4, 1U << 8, 1U << 16));
        while (static_cast<std::uint64_t>(horizon_ps) >> shift_ >= slots - 1) {
            ++shift_;
        }
        mask_ = slots - 1;
        slots_.assign(slots, kNoChunk);
        bits_.assign(slots / 64, 0);
        summary_.assign((bits_.size() + 63) / 64, 0);
    }

    [[nodiscard]] bool pending(std::uint32_t entity) const { return pending_[entity] != 0; }

    /// Adds an entity that has no entry on the wheel. Precondition: `time` is not before the last event popped.
    [[gnu::always_inline]] void insert(std::uint32_t entity, std::int64_t time) {
        const std::uint64_t slot = static_cast<std::uint64_t>(time) >> shift_;
        if (slot - current_ > mask_) {
            insert_far(entity, time);
            return;
        }
        pending_[entity] = 1;
        if (slot == sorted_slot_) {
            insert_late(key_of(time, entity));
            return;
        }
        const std::uint64_t index = slot & mask_;
        if (const std::uint32_t chunk = slots_[index]; chunk == kNoChunk || chunks_[chunk].count == kChunk) {
            add_chunk(index);
        }
        Chunk& chunk = chunks_[slots_[index]];
        chunk.keys[chunk.count++] = key_of(time, entity);
    }

    /// Adds an event of any entity, which may have others already.
    [[gnu::noinline]] void insert_far(std::uint32_t entity, std::int64_t time) {
        far_.push_back({time, entity});
        std::push_heap(far_.begin(), far_.end(), later);
        far_first_ = far_.front().time;
    }

    /// Time of the first event; kNever when there is none.
    [[nodiscard]] std::int64_t next_time() const {
        if (!sorted_.empty() || !late_.empty()) {
            return std::min(far_first_, time_of(sorted_slot_, late_first() ? late_.front() : sorted_.back()));
        }
        const std::uint64_t index = first_slot();
        if (index == kNoSlot) {
            return far_first_;
        }
        std::uint64_t first = kNoSlot;
        for (std::uint32_t i = slots_[index]; i != kNoChunk; i = chunks_[i].next) {
            first = std::min(first, *std::min_element(chunks_[i].keys, chunks_[i].keys + chunks_[i].count));
        }
        return std::min(far_first_, time_of(number_of(index), first));
    }

    /// Removes the first event if it is not after `limit`.
    [[gnu::always_inline]] bool pop(std::int64_t limit, std::int64_t& time, std::uint32_t& entity) {
        if (sorted_.empty() && late_.empty() && !sort_next(limit)) {
            return pop_far(limit, time, entity);
        }
        const bool is_late = late_first();
        const std::uint64_t key = is_late ? late_.front() : sorted_.back();
        const std::int64_t at = time_of(sorted_slot_, key);
        const auto first = static_cast<std::uint32_t>(key & (kMostEntities - 1));
        if (far_first_ <= at && before(far_.front().time, far_.front().entity, at, first)) {
            return pop_far(limit, time, entity);
        }
        if (at > limit) {
            return false;
        }
        time = at;
        entity = first;
        pending_[first] = 0;
        if (is_late) {
            std::pop_heap(late_.begin(), late_.end(), std::greater<>());
            late_.pop_back();
        } else {
            sorted_.pop_back();
        }
        return true;
    }

    /// How many of the next events are known, those apart that have come late.
    [[nodiscard]] std::size_t known_ahead() const { return sorted_.size(); }
    /// The entity that is likely to be popped after so many others. Precondition: more than that are known ahead.
    [[nodiscard]] std::uint32_t ahead(std::size_t others) const {
        return static_cast<std::uint32_t>(sorted_[sorted_.size() - 1 - others] & (kMostEntities - 1));
    }

    [[nodiscard]] std::size_t bytes() const {
        return (sorted_.capacity() + late_.capacity()) * 8 + chunks_.capacity() * sizeof(Chunk) +
               slots_.capacity() * 4 + pending_.capacity() + far_.capacity() * sizeof(Far);
    }

  private:
    static constexpr std::uint64_t kNoSlot = ~0ULL;
    static constexpr unsigned kEntityBits = 28;
    static constexpr std::uint32_t kNoChunk = 0xFFFFFFFFU;
    static constexpr std::uint32_t kChunk = 15;  // makes two cache lines
    /// Some of a slot's events, in any order. Chunks are few and the one freed last is taken first, so they stay in cache.
    struct Chunk {
        std::uint32_t next = kNoChunk;
        std::uint32_t count = 0;
        std::uint64_t keys[kChunk];
    };
    struct Far {
        std::int64_t time;
        std::uint32_t entity;
    };
    static bool before(std::int64_t time_a, std::uint32_t a, std::int64_t time_b, std::uint32_t b) {
        return time_a < time_b || (time_a == time_b && a < b);
    }
    static bool later(const Far& a, const Far& b) { return before(b.time, b.entity, a.time, a.entity); }

    // Orders the events of one slot: what the slot leaves of the time, then the entity.
    [[nodiscard]] std::uint64_t key_of(std::int64_t time, std::uint32_t entity) const {
        return ((static_cast<std::uint64_t>(time) & ((1ULL << shift_) - 1)) << kEntityBits) | entity;
    }
    [[nodiscard]] std::int64_t time_of(std::uint64_t slot, std::uint64_t key) const {
        return static_cast<std::int64_t>((slot << shift_) | (key >> kEntityBits));
    }
    // The number, counted from time 0, of the slot at this place.
    [[nodiscard]] std::uint64_t number_of(std::uint64_t index) const { return current_ + ((index - current_) & mask_); }
    // Whether the first event of the present slot is among those that came when its turn had come.
    [[nodiscard]] bool late_first() const {
        return !late_.empty() && (sorted_.empty() || late_.front() < sorted_.back());
    }

    [[gnu::noinline]] void insert_late(std::uint64_t key) {
        late_.push_back(key);
        std::push_heap(late_.begin(), late_.end(), std::greater<>());
    }

    [[gnu::noinline]] void add_chunk(std::uint64_t index) {
        std::uint32_t chunk = free_;
        if (chunk == kNoChunk) {
            chunk = static_cast<std::uint32_t>(chunks_.size());
            chunks_.emplace_back();
        } else {
            free_ = chunks_[chunk].next;
        }
        chunks_[chunk].next = slots_[index];
        chunks_[chunk].count = 0;
        slots_[index] = chunk;
        bits_[index >> 6] |= 1ULL << (index & 63);
        summary_[index >> 12] |= 1ULL << ((index >> 6) & 63);
    }

    // Takes the first full slot off the wheel and sorts it, unless another event or the limit comes before it.
    [[gnu::noinline]] bool sort_next(std::int64_t limit) {
        const std::uint64_t index = first_slot();
        if (index == kNoSlot) {
            return false;
        }
        const std::uint64_t slot = number_of(index);
        const auto begins = static_cast<std::int64_t>(slot << shift_);
        if (begins > limit || far_first_ < begins) {
            return false;
        }
        for (std::uint32_t i = slots_[index]; i != kNoChunk;) {
            Chunk& chunk = chunks_[i];
            sorted_.insert(sorted_.end(), chunk.keys, chunk.keys + chunk.count);
            const std::uint32_t next = chunk.next;
            chunk.next = free_;
            free_ = i;
            i = next;
        }
        slots_[index] = kNoChunk;
        std::sort(sorted_.begin(), sorted_.end(), std::greater<>());
        if ((bits_[index >> 6] &= ~(1ULL << (index & 63))) == 0) {
            summary_[index >> 12] &= ~(1ULL << ((index >> 6) & 63));
        }
        sorted_slot_ = current_ = slot;
        return true;
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
        return kNoSlot;
    }

    [[gnu::noinline]] bool pop_far(std::int64_t limit, std::int64_t& time, std::uint32_t& entity) {
        if (far_.empty() || far_.front().time > limit) {
            return false;
        }
        time = far_.front().time;
        entity = far_.front().entity;
        std::pop_heap(far_.begin(), far_.end(), later);
        far_.pop_back();
        far_first_ = far_.empty() ? kNever : far_.front().time;
        current_ = std::max(current_, static_cast<std::uint64_t>(time) >> shift_);
        return true;
    }

    unsigned shift_ = 0;
    std::uint64_t mask_ = 0;
    std::uint64_t current_ = 0;            ///< slot of the last event popped, or of those that are sorted
    std::uint64_t sorted_slot_ = kNoSlot;  ///< slot of what is, or was last, in sorted_ and late_
    std::vector<std::uint64_t> sorted_;    ///< keys of the present slot, last first
    std::vector<std::uint64_t> late_;      ///< heap of keys that came when the slot's turn had come
    std::vector<std::uint8_t> pending_;    ///< by entity, whether it has an entry on the wheel
    std::vector<std::uint32_t> slots_;     ///< first chunk of each
    std::vector<Chunk> chunks_;
    std::uint32_t free_ = kNoChunk;       ///< first chunk that is not in use
    std::vector<std::uint64_t> bits_;     ///< one bit a slot: it is not empty
    std::vector<std::uint64_t> summary_;  ///< one bit a word of bits_
    std::vector<Far> far_;
    std::int64_t far_first_ = kNever;  ///< time of its first event
};

}  // namespace orrery::inline network::packet
