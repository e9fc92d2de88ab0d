#pragma once
// The watchdog of priority flow control: a switch's port that has been paused for too long no longer obeys.
//
// Claims: a port of a switch that has been paused for the detection time without a break is in a storm. Until its pause has been
// gone for the restoration time, it drops all data that wait or come, or sends them whatever the pause says. Packets that
// wait at a port in a storm hold no memory of the links that they came over, so a circle of pauses opens.
// Limits: what comes in over the link of such a port is still forwarded, which switches that drop also throw away. Times are
// exact, where switches look every so often. NICs have none.
// Sources: times and the default action are those of SONiC (sonic-utilities, pfcwd/main.py: 200 ms each); what the two actions
// do is in sonic-mgmt, docs/pfcwd/PFCWD_MMU_Change.md. An empty queue is watched as well, as there.
// Validated by tests/sim/network/packet_watchdog_test.cpp.

#include "sim/network/packet/port.hpp"

#include <cstdint>
#include <vector>

namespace orrery::network::packet {

class Watchdog {
  public:
    Watchdog(const Setup& setup, Clock& clock, Ports& ports);

    /// Whether a lane of a port is to pause, by what has come over its link; true when data may leave it again. Ports have
    /// setup.lanes of them each.
    [[nodiscard]] bool set_paused(std::uint32_t lane, bool paused);
    /// The time of a lane has come.
    void look(std::uint32_t lane);
    /// Storms so far.
    [[nodiscard]] std::uint64_t storms() const { return storms_; }

  private:
    struct Record {
        std::int64_t since = 0;  ///< ps, when `asked` last changed
        bool asked = false;      ///< the other end of the link wants a pause
        bool storming = false;
        bool armed = false;  ///< look() is to come
    };
    void arm(std::uint32_t lane, Record& record);

    const Setup& setup_;
    Clock& clock_;
    Ports& ports_;
    std::int64_t detection_;    ///< ps
    std::int64_t restoration_;  ///< ps
    std::vector<Record> records_;
    std::uint64_t storms_ = 0;
};

}  // namespace orrery::network::packet
