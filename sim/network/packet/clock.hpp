#pragma once
// The time of a packet run, and the events that are to come.

#include "sim/network/packet/wheel.hpp"

#include <cstdint>

namespace orrery::network::packet {

/// What kind of event an entity stands for; those of links, NICs and ports come first.
enum class Timer : std::uint32_t {
    wheel,
    start,
    pace,
    retransmit,
    congestion,
    pause,
    resume,
    credit,
    link_event,
    reroute,
    grant,
    write,
    sample,
    watchdog,
    steady,  ///< after all else of its instant
    go_on
};
inline constexpr std::uint32_t kTimerShift = Wheel::kEntityBits;
static_assert(static_cast<std::uint32_t>(Timer::go_on) < 1U << (32 - kTimerShift));
static_assert(Wheel::kNearTimers == static_cast<std::uint32_t>(Timer::pace) << kTimerShift);

struct Clock {
    std::int64_t now = 0;  ///< ps
    std::int64_t before =
        1;  ///< ps: ports have decided on what leaves before this. Ports decide before timers of an instant
    std::int64_t limit = 0;  ///< ps: nothing comes from outside before this
    Wheel wheel{1, 1};

    void schedule(Timer timer, std::uint32_t index, std::int64_t at) {
        if (timer == Timer::pace) {
            wheel.insert_timer(index, at);
            return;
        }
        wheel.insert_far((static_cast<std::uint32_t>(timer) << kTimerShift) | index, at);
    }
};

}  // namespace orrery::network::packet
