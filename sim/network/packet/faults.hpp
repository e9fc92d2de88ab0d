#pragma once
// What goes wrong in a fabric: links that change, NICs that pause their switch, and circles of ports that pause each other.

#include "sim/network/packet/link_events.hpp"
#include "sim/network/packet/nic.hpp"
#include "sim/network/packet/watchdog.hpp"

#include <cstdint>
#include <vector>

namespace orrery::network::packet {

class Faults {
  public:
    Faults(const Setup& setup, Clock& clock, Slab& slab, Messages& messages, Ports& ports, Nics& nics,
           Watchdog& watchdog)
        : setup_(setup),
          clock_(clock),
          slab_(slab),
          messages_(messages),
          ports_(ports),
          nics_(nics),
          watchdog_(watchdog) {}

    /// What ends by itself ends then. Throws ConfigError when the fabric has no such link.
    void add(const TimedFault& event);
    /// The time of an event has come.
    void apply(std::uint32_t event);
    /// As Network::set_rate.
    void set_rate(std::uint32_t port, double factor);
    /// Throws InfeasibleError that names a circle of paused ports, or a NIC that pauses its switch without end, unless a link
    /// event is still to come or a watchdog acts.
    void check_deadlock() const;

  private:
    void set_link(std::uint32_t port, const Fault& fault, bool ends);
    [[nodiscard]] std::vector<std::uint32_t> deadlocked_lanes() const;
    void check_pausing_nics() const;

    const Setup& setup_;
    Clock& clock_;
    Slab& slab_;
    Messages& messages_;
    Ports& ports_;
    Nics& nics_;
    Watchdog& watchdog_;
    std::vector<TimedFault> events_;
    std::size_t left_ = 0;
};

}  // namespace orrery::network::packet
