#pragma once
// Pending events of the packet engine: a timing wheel whose entries are entities (links, NICs), not packets.
//
// Claims: pops in the order (time, entity), whatever the order of insertion. An entity on the wheel has at most one
// entry, so lists are chained through one array and nothing is allocated. What lies beyond the wheel's horizon (timers)
// waits in a binary heap, where an entity may have several entries. A slot is sorted when its turn comes, because traffic
// that starts together stays in step and puts many events into one instant.
// Source: Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987; here with a bitmap of full slots.
// Validated by tests/sim/network/packet_engine_test.cpp against a sorted list.

#include "sim/base/error.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace orrery::packet {

class Wheel {
  public:
    static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

    /// `entities`: how many may be on the wheel. `horizon_ps`: how far ahead most events lie.
    Wheel(std::uint32_t entities, std::int64_t horizon_ps) : batch_(entities), nodes_(entities) {
        // About four slots an entity keep the lists of a slot short; 2^18 slots are 1 MiB.
        const std::uint64_t wanted = std::clamp<std::uint64_t>(4ULL * entities, 1U << 12, 1U << 18);
        const std::uint64_t slots = std::bit_ceil(wanted);
        while (static_cast<std::uint64_t>(horizon_ps) >> shift_ >= slots - 1) {
            ++shift_;
        }
        mask_ = slots - 1;
        heads_.assign(slots, kNone);
        bits_.assign(slots / 64, 0);
        summary_.assign(slots / 4096, 0);
    }

    [[nodiscard]] bool pending(std::uint32_t entity) const { return nodes_[entity].time != kNever; }

    /// Adds an entity that has no entry on the wheel. Precondition: `time` is not before the last event popped.
    void insert(std::uint32_t entity, std::int64_t time) {
        const std::uint64_t slot = static_cast<std::uint64_t>(time) >> shift_;
        if (slot - current_ > mask_) {
            insert_far(entity, time);
            return;
        }
        nodes_[entity].time = time;
        if (slot == batch_slot_) {
            const std::uint64_t key = key_of(time, entity);
            std::size_t at = batch_size_++;
            for (; at > 0 && batch_[at - 1] < key; --at) {
                batch_[at] = batch_[at - 1];
            }
            batch_[at] = key;
            return;
        }
        const std::uint64_t index = slot & mask_;
        nodes_[entity].next = heads_[index];
        heads_[index] = entity;
        bits_[index >> 6] |= 1ULL << (index & 63);
        summary_[index >> 12] |= 1ULL << ((index >> 6) & 63);
    }

    /// Adds an event of any entity, which may have others already.
    void insert_far(std::uint32_t entity, std::int64_t time) {
        far_.push_back({time, entity});
        std::push_heap(far_.begin(), far_.end(), later);
        far_first_ = far_.front().time;
    }

    /// Time of the first event; kNever when there is none.
    [[nodiscard]] std::int64_t next_time() const {
        std::int64_t first = far_first_;
        if (batch_slot_ != kEmpty) {
            return std::min(first, nodes_[static_cast<std::uint32_t>(batch_[batch_size_ - 1])].time);
        }
        if (const std::uint64_t index = first_slot(); index != kEmpty) {
            for (std::uint32_t entity = heads_[index]; entity != kNone; entity = nodes_[entity].next) {
                first = std::min(first, nodes_[entity].time);
            }
        }
        return first;
    }

    /// Removes the first event if it is not after `limit`.
    bool pop(std::int64_t limit, std::int64_t& time, std::uint32_t& entity) {
        if (batch_size_ == 0) {
            const std::uint64_t index = first_slot();
            if (index == kEmpty) {
                return !far_.empty() && pop_far(limit, time, entity);
            }
            const std::uint32_t alone = heads_[index];
            if (Node& node = nodes_[alone]; node.next == kNone && node.time <= limit && node.time < far_first_) {
                empty_slot(index);
                time = node.time;
                entity = alone;
                current_ = static_cast<std::uint64_t>(time) >> shift_;
                node.time = kNever;
                return true;
            }
            const std::uint64_t slot = current_ + ((index - current_) & mask_);
            const auto begins = static_cast<std::int64_t>(slot << shift_);
            if (begins > limit || far_first_ < begins) {
                return !far_.empty() && pop_far(limit, time, entity);
            }
            gather(index);
            batch_slot_ = current_ = slot;
        }
        const auto first = static_cast<std::uint32_t>(batch_[batch_size_ - 1]);
        Node& node = nodes_[first];
        if (far_first_ <= node.time && before(far_.front().time, far_.front().entity, node.time, first)) {
            return pop_far(limit, time, entity);
        }
        if (node.time > limit) {
            return false;
        }
        time = node.time;
        entity = first;
        node.time = kNever;
        if (--batch_size_ == 0) {
            batch_slot_ = kEmpty;
        }
        return true;
    }

    [[nodiscard]] std::size_t bytes() const {
        return nodes_.capacity() * sizeof(Node) + heads_.capacity() * 4 + far_.capacity() * sizeof(Far);
    }

  private:
    static constexpr std::uint64_t kEmpty = ~0ULL;
    struct Node {
        std::int64_t time = kNever;  ///< kNever: not on the wheel
        std::uint32_t next = kNone;
    };
    struct Far {
        std::int64_t time;
        std::uint32_t entity;
    };
    static bool before(std::int64_t time_a, std::uint32_t a, std::int64_t time_b, std::uint32_t b) {
        return time_a < time_b || (time_a == time_b && a < b);
    }
    static bool later(const Far& a, const Far& b) { return before(b.time, b.entity, a.time, a.entity); }

    // Orders the events of one slot: what is left of the time, then the entity.
    [[nodiscard]] std::uint64_t key_of(std::int64_t time, std::uint32_t entity) const {
        return ((static_cast<std::uint64_t>(time) & ((1ULL << shift_) - 1)) << 32) | entity;
    }

    void empty_slot(std::uint64_t index) {
        heads_[index] = kNone;
        if ((bits_[index >> 6] &= ~(1ULL << (index & 63))) == 0) {
            summary_[index >> 12] &= ~(1ULL << ((index >> 6) & 63));
        }
    }

    // Takes a slot off the wheel and sorts it, last first. Most are short.
    [[gnu::noinline]] void gather(std::uint64_t index) {
        for (std::uint32_t entity = heads_[index]; entity != kNone; entity = nodes_[entity].next) {
            const std::uint64_t key = key_of(nodes_[entity].time, entity);
            std::size_t at = batch_size_++;
            if (at < 16) {
                for (; at > 0 && batch_[at - 1] < key; --at) {
                    batch_[at] = batch_[at - 1];
                }
            }
            batch_[at] = key;
        }
        if (batch_size_ > 16) {
            std::sort(batch_.begin(), batch_.begin() + static_cast<std::ptrdiff_t>(batch_size_), std::greater<>());
        }
        empty_slot(index);
    }

    // The first full slot at or after the current one, going round.
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
        return kEmpty;
    }

    [[gnu::noinline]] bool pop_far(std::int64_t limit, std::int64_t& time, std::uint32_t& entity) {
        if (far_.front().time > limit) {
            return false;
        }
        time = far_.front().time;
        entity = far_.front().entity;
        std::pop_heap(far_.begin(), far_.end(), later);
        far_.pop_back();
        far_first_ = far_.empty() ? kNever : far_.front().time;
        current_ = static_cast<std::uint64_t>(time) >> shift_;
        return true;
    }

    unsigned shift_ = 0;
    std::uint64_t mask_ = 0;
    std::uint64_t current_ = 0;          ///< slot number of the last event popped
    std::uint64_t batch_slot_ = kEmpty;  ///< slot number of what is in batch_
    std::vector<std::uint64_t> batch_;   ///< keys of the present slot, last first
    std::size_t batch_size_ = 0;
    std::vector<Node> nodes_;
    std::vector<std::uint32_t> heads_;
    std::vector<std::uint64_t> bits_;     ///< one bit a slot
    std::vector<std::uint64_t> summary_;  ///< one bit a word of bits_
    std::vector<Far> far_;
    std::int64_t far_first_ = kNever;  ///< time of its first event
};

}  // namespace orrery::packet
