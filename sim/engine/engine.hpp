#pragma once
// The engine: sole owner of the clock. Models schedule events; the engine hands them back in total order.
//
// Lazily recomputed state (fluid shares) settles at the end of each instant, once for all that happened in it. Faults and
// decisions (Phase::fault and later) come after that: they see every completion of their instant, also of work that takes no
// time, and what they start belongs to the same instant. The number of rounds of an instant is bounded, so a zero-delay
// livelock is an error and not a hang.

#include "sim/engine/event_queue.hpp"

#include <cstdint>
#include <vector>

namespace orrery::engine {

/// Receives the events it scheduled. `datum` is what was given to Engine::schedule.
class EventHandler {
  public:
    virtual ~EventHandler() = default;
    virtual void on_event(std::uint32_t datum) = 0;
    /// Called when all events of an instant have run, before the clock moves. May schedule events at `now`.
    virtual void settle() {}
};

class Engine {
  public:
    /// Registers a handler that outlives the engine's run; returns the index used with `schedule`.
    std::uint32_t add_handler(EventHandler& handler, bool settles = false);

    [[nodiscard]] SimTime now() const { return now_; }
    [[nodiscard]] std::uint64_t events() const { return events_; }

    /// Precondition: at >= now(). `order` comes from event_order().
    void schedule(SimTime at, std::uint64_t order, std::uint32_t handler, std::uint32_t datum) {
        queue_.push(Event{at.ps(), order, handler, datum});
    }

    /// Time of the next event; SimTime::max() when there is none. A model with a queue of its own may run up to it.
    [[nodiscard]] SimTime next_time() const {
        return queue_.empty() ? SimTime::max() : SimTime::from_ps(queue_.earliest());
    }

    /// Runs until no event is left. Throws InternalError on a livelock within one instant.
    void run();

    /// Rounds of events and settling allowed at one instant before it counts as a livelock.
    static constexpr std::uint64_t kMaxRoundsPerInstant = 10'000'000;

  private:
    void settle();

    EventQueue queue_;
    SimTime now_;
    std::uint64_t events_ = 0;
    bool unsettled_ = true;  ///< something has happened since the last settling
    std::vector<EventHandler*> handlers_;
    std::vector<EventHandler*> settlers_;
};

}  // namespace orrery::engine
