#pragma once
// What goes wrong in a fabric: links that change, and circles of ports that pause each other.

#include "sim/network/packet/link_event.hpp"
#include "sim/network/packet/nic.hpp"

#include <cstdint>
#include <vector>

namespace orrery::inline network::packet {

class Faults {
  public:
    Faults(const Setup& setup, Clock& clock, Slab& slab, Messages& messages, Ports& ports, Nics& nics)
        : setup_(setup), clock_(clock), slab_(slab), messages_(messages), ports_(ports), nics_(nics) {}

    /// Throws ConfigError when the fabric has no such link.
    void add(const LinkEvent& event);
    /// The time of an event has come.
    void apply(std::uint32_t event);
    /// As Network::set_rate.
    void set_rate(std::uint32_t port, double factor);
    /// Throws InfeasibleError that names a circle of paused ports, unless a link event is still to come that could break it.
    void check_deadlock() const;

  private:
    void set_link(std::uint32_t port, const LinkEvent& event);
    [[nodiscard]] std::vector<std::uint32_t> deadlocked_ports() const;

    const Setup& setup_;
    Clock& clock_;
    Slab& slab_;
    Messages& messages_;
    Ports& ports_;
    Nics& nics_;
    std::vector<LinkEvent> events_;
    std::size_t left_ = 0;
};

}  // namespace orrery::inline network::packet
