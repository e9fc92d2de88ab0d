#pragma once
// Transports: how data get through. One file and one row of the table each; a transport owns its parameters.
//
// A transport decides a flow's window and rate (congestion control) from acknowledgements, losses, notifications and timers,
// and states what else it needs of senders and receivers. One object serves all flows of a run; what it keeps of each is
// a small record that the flow holds.
// Limits: no transport sees another flow's record; TCP's delayed acknowledgements and SACK details are not modelled.
// Validated by tests/sim/network/packet_transport_test.cpp: each against its equations.

#include "sim/config/policy.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <type_traits>

namespace orrery::network::packet {

inline constexpr double kNoLimit = 1e300;
inline constexpr std::int64_t kNoTimer = std::numeric_limits<std::int64_t>::max();

/// What a run's flows have in common.
struct CongestionSettings {
    double packet = 0;        ///< bytes of a full packet on the wire
    double payload = 0;       ///< bytes of data in it
    double line_rate = 0;     ///< B/s of a NIC
    double base_rtt = 0;      ///< ps of the longest path without load
    double max_window = 0;    ///< bytes
    double told = 0;          ///< bytes that an acknowledgement may wait for
    bool trims = false;       ///< switches trim what has no room
    std::uint32_t paths = 0;  ///< of a flow, for each of which it has a window; 0: one window for all
};

/// What a link of a flow's path did between the packets of two acknowledgements.
struct LinkLoad {
    double capacity = 0;  ///< B/s
    double sent = 0;      ///< bytes, of all flows
    double elapsed = 0;   ///< ps
    double waiting = 0;   ///< bytes in its queue, the less of the two times
};

/// An acknowledgement as a transport sees it.
struct Acknowledged {
    std::int64_t now = 0;    ///< ps
    std::int64_t delay = 0;  ///< ps from sending the packet to this acknowledgement
    double bytes = 0;        ///< newly acknowledged
    bool marked = false;
    std::uint32_t cumulative = 0;          ///< packets before this have all arrived
    std::uint32_t next = 0;                ///< first packet not yet sent
    double in_flight = 0;                  ///< bytes, without these
    std::span<const LinkLoad> links = {};  ///< of its path; none without telemetry, and with a flow's first one
    bool late = false;                     ///< its packet was, as TransportNeeds::late has it
    std::int64_t held = 0;                 ///< ps of the delay for which its receiver's NIC waited to write the packet
    std::uint32_t filled = 0;              ///< of that NIC's buffer, 32nds, at most 31
    std::uint32_t path = 0;                ///< that its packet took, of CongestionSettings::paths
    std::span<const std::uint32_t> under_way = {};  ///< packets on each of them, without these
};

/// A flow goes on at a later time, and with later packets: times and numbers of packets that are kept become so much larger.
struct Shift {
    std::int64_t time = 0;  ///< ps
    std::uint32_t packets = 0;

    void move(std::int64_t& kept) const { kept += time; }
    void move(std::uint32_t& number) const { number += packets; }
};

/// Packets that a sender finds lost.
struct Lost {
    std::int64_t now = 0;  ///< ps
    double bytes = 0;
    std::uint32_t cumulative = 0;  ///< as in Acknowledged
    std::uint32_t next = 0;
    double in_flight = 0;      ///< bytes, with these
    std::int64_t trimmed = 0;  ///< ps from sending a packet to the report that it was trimmed; 0: not trimmed
    bool last_hop = false;     ///< trimmed at the port to its receiver
    bool no_room = false;      ///< the buffer of its receiver's NIC was full
};

/// One flow's window and rate, and what its transport remembers of it.
struct CongestionState {
    double window = kNoLimit;       ///< bytes in flight
    double rate = 0;                ///< B/s, pacing; 0: as the link allows
    std::int64_t timer = kNoTimer;  ///< ps, when the transport wants to hear of the time
    alignas(8) std::byte own[120]{};

    /// The transport's record; the first call must be `begin`.
    template <class T>
    T& begin() {
        static_assert(sizeof(T) <= sizeof(own) && alignof(T) <= 8 && std::is_trivially_copyable_v<T>);
        return *new (own) T();
    }
    template <class T>
    [[nodiscard]] T& as() {
        return *std::launder(reinterpret_cast<T*>(own));
    }
};

/// What a transport needs of senders, receivers and switches.
struct TransportNeeds {
    bool window = true;           ///< its flows keep to the window that the scenario gives
    bool acknowledged = true;     ///< receivers acknowledge; what is lost is sent again
    bool go_back_n = false;       ///< unless the scenario names another recovery
    bool credits = false;         ///< beyond its first window a flow sends what its receiver grants
    bool backlog = false;         ///< packets tell how much credit their sender could use, and receivers give no more
    double speculative = 0;       ///< bytes of credit until the receiver is heard; 0: a window
    bool fills_queues = false;    ///< its windows grow until packets are lost or marked
    bool rare_news = false;       ///< many packets an acknowledgement will do
    bool asks_early = true;       ///< with a small window each packet asks for one, and not the one that fills it alone
    bool counts_bytes = false;    ///< on_sent is called
    bool eager = false;           ///< a flow's first packet, and each that is sent again, is answered at once
    bool telemetry = false;       ///< ports write their load into packets, acknowledgements bring it back
    bool path_windows = false;    ///< it can have a window for each path of a flow
    double probe = 0;             ///< s at least without news, and two round trips, until it probes; 0: it never does
    bool timed = false;           ///< acknowledgements may set its timer
    bool hears_buffers = false;   ///< of receivers' NICs: how full they are, and of packets that had no room
    bool credit_links = false;    ///< made for links with credits, whose ports mark only what they have credits for
    std::uint32_t ahead = 0;      ///< packets from the first unacknowledged one on that may be sent; 0: any number
    std::uint32_t late = 0;       ///< packets behind the highest acknowledged one beyond which one is late; 0: none is
    std::uint32_t operation = 0;  ///< packets of which the last is written after all before it; 0: in any order
    double operation_wait = 0;    ///< packets in whose time at the flow's rate that one is held back
    double notification_gap = -1;  ///< s at least between notifications of marks; negative: receivers send none
};

class Transport {
  public:
    virtual ~Transport() = default;
    [[nodiscard]] virtual TransportNeeds needs() const { return {}; }
    /// What its parameters contradict each other in; empty: nothing.
    [[nodiscard]] virtual std::string problem() const { return {}; }
    /// Before the first flow.
    void begin(const CongestionSettings& run) { run_ = run; }

    /// Sets up the record of a new flow.
    virtual void start(CongestionState&) const {}
    virtual void on_ack(CongestionState&, const Acknowledged&) const {}
    virtual void on_loss(CongestionState&, const Lost&) const {}
    /// Nothing was heard: all that was in flight counts as lost.
    virtual void on_timeout(CongestionState&, const Lost&) const {}
    virtual void on_notification(CongestionState&, std::int64_t /*now*/) const {}
    virtual void on_sent(CongestionState&, double /*bytes*/) const {}
    /// The time of `CongestionState::timer` has come.
    virtual void on_timer(CongestionState&, std::int64_t /*now*/) const {}
    /// The path that the flow's next packet takes: its number, of CongestionSettings::paths, and kMostPaths more for each time that
    /// this one was changed for another. `under_way`: packets, by path.
    [[nodiscard]] virtual std::uint32_t choose_path(CongestionState&,
                                                    std::span<const std::uint32_t> /*under_way*/) const {
        return 0;
    }
    /// The record passes to another flow, whose packets are numbered from 0 again.
    virtual void renumber(CongestionState&) const {}
    /// Moves each time and each number of a packet in the record. For every transport to say, as one that is left behind shows
    /// nowhere at once.
    virtual void shift(CongestionState&, const Shift&) const = 0;
    /// ps in which its control acts where that is longer than a few round trips; 0: it is not.
    [[nodiscard]] virtual std::int64_t period() const { return 0; }

  protected:
    [[nodiscard]] double clamp_window(double window) const { return std::clamp(window, run_.packet, run_.max_window); }
    [[nodiscard]] static std::int64_t to_ps(double seconds) { return std::llround(seconds * 1e12); }

    CongestionSettings run_;
};

/// All transports, the default among them.
[[nodiscard]] const PolicyTable<Transport>& transport_table();

}  // namespace orrery::network::packet
