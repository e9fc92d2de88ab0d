#include "sim/engine/engine.hpp"

namespace orrery {

std::uint32_t Engine::add_handler(EventHandler& handler, bool settles) {
    handlers_.push_back(&handler);
    if (settles) {
        settlers_.push_back(&handler);
    }
    return static_cast<std::uint32_t>(handlers_.size() - 1);
}

void Engine::run() {
    for (EventHandler* settler : settlers_) {
        settler->settle();
    }
    std::uint64_t rounds = 0;
    while (!queue_.empty()) {
        const std::int64_t instant = queue_.next_time();
        if (instant != now_.ps()) {
            now_ = SimTime::from_ps(instant);
            rounds = 0;
        }
        while (queue_.instant_pending()) {
            const Event event = queue_.pop();
            ++events_;
            if (++rounds > kMaxRoundsPerInstant) {
                throw InternalError("livelock: more than " + std::to_string(kMaxRoundsPerInstant) +
                                    " events at t = " + std::to_string(now_.seconds()) + " s");
            }
            handlers_[event.handler]->on_event(event.datum);
        }
        for (EventHandler* settler : settlers_) {
            settler->settle();
        }
    }
}

}  // namespace orrery
