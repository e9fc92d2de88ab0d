#pragma once
// The pending-event set: a monotone radix heap on time, with a small binary heap for the current instant.
//
// Claims: pops in the total order (time, phase, entity, sequence of that entity), whatever the order of insertion.
// Amortised O(64) bucket moves an event, no allocation once the buckets have grown. Monotone: an event may not be
// pushed before the time of the last one popped, which is what a simulator guarantees anyway.
// Source: Ahuja, Mehlhorn, Orlin, Tarjan, "Faster algorithms for the shortest path problem", JACM 37(2), 1990.
// Validated by tests/sim/engine/event_queue_test.cpp against std::priority_queue on random loads.

#include "sim/base/time.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace orrery::engine {

/// What runs first among the events of one instant: a scheduler sees every completion of its instant.
enum class Phase : std::uint8_t { network = 0, device = 1, fault = 2, scheduler = 3, sampling = 4 };

/// The order of events within an instant, packed so that one comparison decides.
/// `sequence` counts the events of its entity and may wrap after 2^28.
[[nodiscard]] constexpr std::uint64_t event_order(Phase phase, std::uint32_t entity, std::uint32_t sequence) {
    return (static_cast<std::uint64_t>(phase) << 60) | (static_cast<std::uint64_t>(entity) << 28) |
           (sequence & 0x0FFFFFFFU);
}

struct Event {
    std::int64_t time_ps;
    std::uint64_t order;    ///< event_order(...)
    std::uint32_t handler;  ///< index given by Engine::add_handler
    std::uint32_t datum;    ///< meaning known to the handler
};

class EventQueue {
  public:
    EventQueue();

    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// True while events of the instant last popped are pending. Unlike next_time() this never moves on.
    [[nodiscard]] bool instant_pending() const { return !instant_.empty(); }
    /// The order of the next of them. Precondition: instant_pending().
    [[nodiscard]] std::uint64_t instant_order() const { return instant_.front().order; }
    /// Precondition: event.time_ps is at or after the last time popped.
    void push(const Event& event) {
        ORRERY_ASSERT(event.time_ps >= last_);
        ++size_;
        if (event.time_ps != last_) {
            file(event);
            return;
        }
        instant_.push_back(event);
        if (instant_.size() > 1) {
            std::push_heap(instant_.begin(), instant_.end(), Later{});
        }
    }
    /// The time of the next event; from then on nothing earlier may be pushed. Precondition: not empty.
    [[nodiscard]] std::int64_t next_time();
    /// The same without moving on: earlier events may still be pushed. Precondition: not empty.
    [[nodiscard]] std::int64_t earliest() const;
    /// Removes and returns the first event. Precondition: not empty.
    Event pop() {
        ORRERY_ASSERT(size_ > 0);
        if (instant_.empty()) {
            refill();
        }
        --size_;
        if (instant_.size() > 1) {
            std::pop_heap(instant_.begin(), instant_.end(), Later{});
        }
        const Event event = instant_.back();
        instant_.pop_back();
        return event;
    }

  private:
    struct Later {
        bool operator()(const Event& a, const Event& b) const { return a.order > b.order; }
    };
    void file(const Event& event);  ///< beyond the present instant
    void refill();

    std::int64_t last_ = 0;
    std::size_t size_ = 0;
    std::uint64_t occupied_ = 0;  ///< bit i set when buckets_[i] is not empty
    std::vector<Event> instant_;  ///< events at time last_, a heap on order
    std::array<std::vector<Event>, 64> buckets_;
    std::vector<Event> scratch_;
};

}  // namespace orrery::engine
