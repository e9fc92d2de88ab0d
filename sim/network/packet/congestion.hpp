#pragma once
// Congestion control: congestion control that set the window and the rate of a flow from what comes back.
//
// Claims: each congestion control is the one of its publication, named at its class. A congestion control sees acknowledgements, losses and its own
// timers; the sender keeps to `window` (bytes in flight) and `rate` (pacing; 0: as the link allows).
// Limits: no congestion control sees another flow's state; TCP's delayed acknowledgements and SACK details are not modelled.
// Validated by tests/sim/network/packet_transport_test.cpp: each congestion control against its equations.

#include "sim/network/packet/spec.hpp"

#include <cstdint>
#include <limits>
#include <variant>

namespace orrery::packet {

inline constexpr double kNoLimit = 1e300;
inline constexpr std::int64_t kNoTimer = std::numeric_limits<std::int64_t>::max();

/// What a run's flows have in common.
struct CongestionSettings {
    TransportSpec spec;
    double packet = 0;      ///< bytes of a full packet on the wire
    double line_rate = 0;   ///< B/s of a NIC
    double base_rtt = 0;    ///< ps of the longest path without load
    double max_window = 0;  ///< bytes
};

/// An acknowledgement as a congestion control sees it.
struct Acknowledged {
    std::int64_t now = 0;    ///< ps
    std::int64_t delay = 0;  ///< ps from sending the packet to this acknowledgement
    double bytes = 0;        ///< newly acknowledged
    bool marked = false;
    std::uint32_t cumulative = 0;  ///< packets before this have all arrived
    std::uint32_t next = 0;        ///< first packet not yet sent
};

/// What congestion control share: no reaction unless a congestion control defines one.
struct CongestionBase {
    double window = kNoLimit;
    double rate = 0;
    void on_ack(const CongestionSettings&, const Acknowledged&) {}
    /// Packets were found lost; `cumulative` and `next` as in Acknowledged.
    void on_loss(const CongestionSettings&, std::int64_t, std::uint32_t, std::uint32_t) {}
    void on_timeout(const CongestionSettings&, std::int64_t) {}
    void on_notification(const CongestionSettings&, std::int64_t) {}
};

/// A constant window; also `ideal` (no limit) and receiver-driven flows, which credits govern.
struct FixedWindow : CongestionBase {};

/// DCQCN's reaction point: Zhu et al., SIGCOMM 2015, equations 1 to 4.
struct Dcqcn : CongestionBase {
    double target = 0;  ///< B/s
    double alpha = 1;
    double byte_count = 0;
    std::int64_t alpha_due = kNoTimer;
    std::int64_t rate_due = kNoTimer;
    std::uint32_t byte_steps = 0;
    std::uint32_t timer_steps = 0;

    void start(const CongestionSettings& s);
    void on_sent(const CongestionSettings& s, double bytes);
    void on_notification(const CongestionSettings& s, std::int64_t now);
    /// Decays alpha and raises the rate where these are due; returns when the next is.
    std::int64_t on_timer(const CongestionSettings& s, std::int64_t now);

  private:
    void increase(const CongestionSettings& s);
};

/// Swift: Kumar et al., SIGCOMM 2020, algorithm 1.
struct Swift : CongestionBase {
    std::int64_t last_decrease = 0;
    std::int64_t delay = 0;

    void start(const CongestionSettings& s);
    void on_ack(const CongestionSettings& s, const Acknowledged& ack);
    void on_loss(const CongestionSettings& s, std::int64_t now, std::uint32_t cumulative, std::uint32_t next);
    void on_timeout(const CongestionSettings& s, std::int64_t now);
    [[nodiscard]] double target(const CongestionSettings& s) const;  ///< ps
};

/// A window over many paths, driven by delay and marks: four quadrants as in Ultra Ethernet's NSCC.
struct Multipath : CongestionBase {
    double mean_delay = 0;  ///< ps of queueing, smoothed
    std::int64_t last_decrease = 0;
    std::uint32_t recover = 0;

    void start(const CongestionSettings& s);
    void on_ack(const CongestionSettings& s, const Acknowledged& ack);
    void on_loss(const CongestionSettings& s, std::int64_t now, std::uint32_t cumulative, std::uint32_t next);
    void on_timeout(const CongestionSettings& s, std::int64_t now);
};

/// DCTCP: RFC 8257.
struct Dctcp : CongestionBase {
    double threshold = kNoLimit;  ///< bytes: slow start below
    double alpha = 1;
    double acked = 0;
    double marked = 0;
    std::uint32_t window_end = 0;
    std::uint32_t recover = 0;

    void start(const CongestionSettings& s);
    void on_ack(const CongestionSettings& s, const Acknowledged& ack);
    void on_loss(const CongestionSettings& s, std::int64_t now, std::uint32_t cumulative, std::uint32_t next);
    void on_timeout(const CongestionSettings& s, std::int64_t now);
};

/// CUBIC: RFC 9438.
struct Cubic : CongestionBase {
    double threshold = kNoLimit;  ///< bytes: slow start below
    double last_max = 0;          ///< packets
    double start_window = 0;      ///< packets, at the start of the epoch
    double friendly = 0;          ///< packets: what Reno would have
    double k = 0;                 ///< s
    std::int64_t epoch = -1;
    std::uint32_t recover = 0;

    void start(const CongestionSettings& s);
    void on_ack(const CongestionSettings& s, const Acknowledged& ack);
    void on_loss(const CongestionSettings& s, std::int64_t now, std::uint32_t cumulative, std::uint32_t next);
    void on_timeout(const CongestionSettings& s, std::int64_t now);

  private:
    void decrease(const CongestionSettings& s);
};

using CongestionControl = std::variant<FixedWindow, Dcqcn, Swift, Multipath, Dctcp, Cubic>;

/// Makes a congestion control fit for another flow whose packets are numbered from 0 again.
void forget_sequences(CongestionControl& congestion);
/// The congestion control of a new flow.
[[nodiscard]] CongestionControl make_congestion_control(const CongestionSettings& settings);

}  // namespace orrery::packet
