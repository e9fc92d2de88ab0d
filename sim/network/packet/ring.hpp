#pragma once
// First-in-first-out queues of packets as rings in one pool: neighbours in a queue are neighbours in memory, and a packet's
// own record is not touched while others come behind it or leave before it.

#include "sim/base/error.hpp"
#include "sim/base/huge_pages.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace orrery::network::packet {

/// A packet in a queue. The time means what the queue's owner says.
struct Queued {
    std::int64_t time = 0;  ///< ps
    std::uint32_t packet = 0;
    std::uint32_t size = 0;  ///< bytes on the wire
};

/// A queue; its entries lie in the pool that it grows in.
struct Ring {
    std::uint32_t first = 0;  ///< place of its entries in the pool
    std::uint32_t head = 0;
    std::uint32_t tail = 0;  ///< where the next one goes
    std::uint32_t mask = 0;  ///< of places: one less than a power of two; one place stays empty

    [[nodiscard]] bool empty() const { return head == tail; }
    [[nodiscard]] std::uint32_t count() const { return (tail - head) & mask; }
};

/// The pool of all queues of a run.
class RingBuffers {
  public:
    /// So many entries are likely to be needed. What is not used of their memory stays with the system.
    void expect(std::size_t entries) { entries_.reserve(entries); }
    /// Entry `i` from the front. Precondition: it has one.
    [[nodiscard]] Queued& at(const Ring& ring, std::uint32_t i) {
        return entries_[ring.first + ((ring.head + i) & ring.mask)];
    }
    [[nodiscard]] const Queued& at(const Ring& ring, std::uint32_t i) const {
        return entries_[ring.first + ((ring.head + i) & ring.mask)];
    }
    [[nodiscard]] const Queued& front(const Ring& ring) const { return entries_[ring.first + ring.head]; }

    void push(Ring& ring, const Queued& entry) {
        if (((ring.tail + 1) & ring.mask) == ring.head) [[unlikely]] {
            grow(ring);
        }
        entries_[ring.first + ring.tail] = entry;
        ring.tail = (ring.tail + 1) & ring.mask;
    }
    Queued pop(Ring& ring) {
        const Queued entry = entries_[ring.first + ring.head];
        ring.head = (ring.head + 1) & ring.mask;
        return entry;
    }
    [[nodiscard]] std::size_t memory() const { return entries_.size() * sizeof(Queued); }

  private:
    static constexpr std::uint32_t kLeast = 8;

    // Moves a full queue to a place of twice the size; its old place serves the next queue that grows to that.
    [[gnu::noinline]] void grow(Ring& ring) {
        const std::uint32_t capacity = ring.mask == 0 ? kLeast : 2 * (ring.mask + 1);
        const auto log = static_cast<std::size_t>(std::countr_zero(capacity));
        free_.resize(std::max(free_.size(), log + 1));
        std::uint32_t first = 0;
        if (free_[log].empty()) {
            ORRERY_ASSERT(entries_.size() + capacity <= 0xFFFFFFFFU);
            first = static_cast<std::uint32_t>(entries_.size());
            entries_.resize(entries_.size() + capacity);
        } else {
            first = free_[log].back();
            free_[log].pop_back();
        }
        const std::uint32_t count = ring.count();
        for (std::uint32_t i = 0; i < count; ++i) {
            entries_[first + i] = at(ring, i);
        }
        if (ring.mask > 0) {
            free_[log - 1].push_back(ring.first);
        }
        ring = {first, 0, count, capacity - 1};
    }

    HugeVector<Queued> entries_;
    std::vector<std::vector<std::uint32_t>> free_;  ///< places, by the logarithm of their capacity
};

}  // namespace orrery::network::packet
