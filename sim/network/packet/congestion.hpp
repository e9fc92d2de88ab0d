#pragma once
// Congestion control: laws that set the window and the rate of a flow from what comes back.
//
// Claims: each law is the one of its publication, named at its class. A law sees acknowledgements, losses and its own
// timers; the sender keeps to `window` (bytes in flight) and `rate` (pacing; 0: as the link allows).
// Limits: no law sees another flow's state; TCP's delayed acknowledgements and SACK details are not modelled.
// Validated by tests/sim/network/packet_transport_test.cpp: each law against its equations.

#include "sim/network/packet/spec.hpp"

#include <cstdint>
#include <limits>
#include <variant>

namespace orrery::packet {

inline constexpr double kNoLimit = 1e300;
inline constexpr std::int64_t kNoTimer = std::numeric_limits<std::int64_t>::max();

/// What a run's flows have in common.
struct LawSettings {
    TransportSpec spec;
    double packet = 0;      ///< bytes of a full packet on the wire
    double line_rate = 0;   ///< B/s of a NIC
    double base_rtt = 0;    ///< ps of the longest path without load
    double max_window = 0;  ///< bytes
};

/// An acknowledgement as a law sees it.
struct Acknowledged {
    std::int64_t now = 0;    ///< ps
    std::int64_t delay = 0;  ///< ps from sending the packet to this acknowledgement
    double bytes = 0;        ///< newly acknowledged
    bool marked = false;
    std::uint32_t cumulative = 0;  ///< packets before this have all arrived
    std::uint32_t next = 0;        ///< first packet not yet sent
};

/// What laws share: no reaction unless a law defines one.
struct LawBase {
    double window = kNoLimit;
    double rate = 0;
    void on_ack(const LawSettings&, const Acknowledged&) {}
    /// Packets were found lost; `cumulative` and `next` as in Acknowledged.
    void on_loss(const LawSettings&, std::int64_t, std::uint32_t, std::uint32_t) {}
    void on_timeout(const LawSettings&, std::int64_t) {}
    void on_notification(const LawSettings&, std::int64_t) {}
};

/// A constant window; also `ideal` (no limit) and receiver-driven flows, which credits govern.
struct FixedWindow : LawBase {};

/// DCQCN's reaction point: Zhu et al., SIGCOMM 2015, equations 1 to 4.
struct Dcqcn : LawBase {
    double target = 0;  ///< B/s
    double alpha = 1;
    double byte_count = 0;
    std::int64_t alpha_due = kNoTimer;
    std::int64_t rate_due = kNoTimer;
    std::uint32_t byte_steps = 0;
    std::uint32_t timer_steps = 0;

    void start(const LawSettings& s);
    void on_sent(const LawSettings& s, double bytes);
    void on_notification(const LawSettings& s, std::int64_t now);
    /// Decays alpha and raises the rate where these are due; returns when the next is.
    std::int64_t on_timer(const LawSettings& s, std::int64_t now);

  private:
    void increase(const LawSettings& s);
};

/// Swift: Kumar et al., SIGCOMM 2020, algorithm 1.
struct Swift : LawBase {
    std::int64_t last_decrease = 0;
    std::int64_t delay = 0;

    void start(const LawSettings& s);
    void on_ack(const LawSettings& s, const Acknowledged& ack);
    void on_loss(const LawSettings& s, std::int64_t now, std::uint32_t cumulative, std::uint32_t next);
    void on_timeout(const LawSettings& s, std::int64_t now);
    [[nodiscard]] double target(const LawSettings& s) const;  ///< ps
};

/// A window over many paths, driven by delay and marks: four quadrants as in Ultra Ethernet's NSCC.
struct Multipath : LawBase {
    double mean_delay = 0;  ///< ps of queueing, smoothed
    std::int64_t last_decrease = 0;
    std::uint32_t recover = 0;

    void start(const LawSettings& s);
    void on_ack(const LawSettings& s, const Acknowledged& ack);
    void on_loss(const LawSettings& s, std::int64_t now, std::uint32_t cumulative, std::uint32_t next);
    void on_timeout(const LawSettings& s, std::int64_t now);
};

/// DCTCP: RFC 8257.
struct Dctcp : LawBase {
    double threshold = kNoLimit;  ///< bytes: slow start below
    double alpha = 1;
    double acked = 0;
    double marked = 0;
    std::uint32_t window_end = 0;
    std::uint32_t recover = 0;

    void start(const LawSettings& s);
    void on_ack(const LawSettings& s, const Acknowledged& ack);
    void on_loss(const LawSettings& s, std::int64_t now, std::uint32_t cumulative, std::uint32_t next);
    void on_timeout(const LawSettings& s, std::int64_t now);
};

/// CUBIC: RFC 9438.
struct Cubic : LawBase {
    double threshold = kNoLimit;  ///< bytes: slow start below
    double last_max = 0;          ///< packets
    double start_window = 0;      ///< packets, at the start of the epoch
    double friendly = 0;          ///< packets: what Reno would have
    double k = 0;                 ///< s
    std::int64_t epoch = -1;
    std::uint32_t recover = 0;

    void start(const LawSettings& s);
    void on_ack(const LawSettings& s, const Acknowledged& ack);
    void on_loss(const LawSettings& s, std::int64_t now, std::uint32_t cumulative, std::uint32_t next);
    void on_timeout(const LawSettings& s, std::int64_t now);

  private:
    void decrease(const LawSettings& s);
};

using CongestionLaw = std::variant<FixedWindow, Dcqcn, Swift, Multipath, Dctcp, Cubic>;

/// Makes a law fit for another flow whose packets are numbered from 0 again.
void forget_sequences(CongestionLaw& law);
/// The law of a new flow.
[[nodiscard]] CongestionLaw make_law(const LawSettings& settings);

}  // namespace orrery::packet
