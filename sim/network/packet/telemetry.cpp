#include "sim/network/packet/telemetry.hpp"

#include "sim/base/error.hpp"

namespace orrery::network::packet {

void Telemetry::stamp(std::uint32_t packet, std::uint32_t port, std::int64_t now, std::uint64_t sent, double waiting,
                      double rate) {
    Path& path = told_[packet];
    ORRERY_ASSERT(path.count < kMostTold);
    path.hops[path.count++] = {now, sent, waiting, rate, port};
}

void Telemetry::carry(std::uint32_t data, std::uint32_t acknowledgement) {
    clear(acknowledgement);
    told_[acknowledgement] = told_[data];
}

std::span<const LinkLoad> Telemetry::since_last(std::uint32_t flow, std::uint32_t acknowledgement) {
    const Path& now = told_[acknowledgement];
    Path& last = last_[flow];
    bool same = now.count == last.count;
    for (std::uint32_t i = 0; same && i < now.count; ++i) {
        // Two packets leave a port one after the other; an acknowledgement of an older packet tells nothing new.
        same = now.hops[i].port == last.hops[i].port && now.hops[i].time > last.hops[i].time;
    }
    for (std::uint32_t i = 0; same && i < now.count; ++i) {
        const Hop& to = now.hops[i];
        const Hop& from = last.hops[i];
        loads_[i] = {to.rate, static_cast<double>(to.sent - from.sent), static_cast<double>(to.time - from.time),
                     std::min(to.waiting, from.waiting)};
    }
    const std::uint32_t count = same ? now.count : 0;
    last = now;
    return {loads_.data(), count};
}

}  // namespace orrery::network::packet
