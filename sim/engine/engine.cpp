#include "sim/engine/engine.hpp"

namespace orrery::engine {

namespace {
constexpr std::uint64_t kAfterSettling = event_order(Phase::fault, 0, 0);
}

std::uint32_t Engine::add_handler(EventHandler& handler, bool settles) {
    handlers_.push_back(&handler);
    if (settles) {
        settlers_.push_back(&handler);
    }
    return static_cast<std::uint32_t>(handlers_.size() - 1);
}

void Engine::settle() {
    for (EventHandler* settler : settlers_) {
        settler->settle();
    }
    unsettled_ = false;
}

void Engine::run() {
    settle();
    std::uint64_t rounds = 0;
    while (!queue_.empty()) {
        const std::int64_t instant = queue_.next_time();
        if (instant != now_.ps()) {
            ORRERY_ASSERT(instant > now_.ps());
            now_ = SimTime::from_ps(instant);
            rounds = 0;
        }
        while (queue_.instant_pending()) {
            if (unsettled_ && queue_.instant_order() >= kAfterSettling) {
                settle();  // may bring more of this instant, which comes first
                continue;
            }
            const Event event = queue_.pop();
            unsettled_ = true;
            ++events_;
            if (++rounds > kMaxRoundsPerInstant) {
                throw InternalError("livelock: more than " + std::to_string(kMaxRoundsPerInstant) +
                                    " events at t = " + std::to_string(now_.seconds()) + " s");
            }
            handlers_[event.handler]->on_event(event.datum);
        }
        settle();
    }
}

}  // namespace orrery::engine
