#pragma once
// A part of a network with its own clock: NICs, ports and flows as the whole network has them, of which it handles its own.
//
// A network that is not divided is one part. What parts are and what goes between them: parts.hpp; who runs them: crew.hpp.

#include "sim/network/packet/faults.hpp"
#include "sim/network/packet/receiver.hpp"
#include "sim/network/packet/reduction.hpp"
#include "sim/network/packet/routing.hpp"
#include "sim/network/packet/steady.hpp"

#include <memory>

namespace orrery::network::packet {

/// When ports decide on what leaves them: with each packet that is queued; when it would arrive; or each in its turn, of one queue or
/// of several lanes.
enum class Departures { known, decided_late, decided_in_turn, decided_by_lane };

/// What is told of the run now and then.
class Watcher {
  public:
    virtual ~Watcher() = default;
    /// Many events have been handled. `delivered`: packets so far; `payload`: bytes; `now`: ps.
    virtual void watch(std::uint64_t delivered, double payload, std::int64_t now) = 0;
    virtual void sample() = 0;
};

struct Partition {
    /// All arguments outlive it. `seed`: of the whole network.
    Partition(const Setup& setup, const Parts& parts, std::uint32_t own, Messages& messages, const Transport& transport,
              Watcher& watcher, std::uint64_t seed);

    /// Runs to `limit` (included). The whole network stops at the end of the first instant at which messages complete, a part
    /// that is told to `stop` at that of the first instant at which flows end.
    void run(std::int64_t limit, bool stop);
    [[nodiscard]] std::size_t memory() const;

    std::unique_ptr<PathChooser> chooser;
    Border border;
    Clock clock;
    Slab slab;
    Flows flows;
    Messages& messages;
    Ports ports;
    Routing routing;
    Nics nics;
    Receivers receivers;
    Reductions reductions;
    Watchdog watchdog;
    Faults faults;
    std::unique_ptr<Steady> steady;  ///< none: every packet is simulated
    std::uint64_t events = 0;

  private:
    static constexpr std::uint64_t kWatchInterval = 1U << 20;  // events

    // `kWatched`: more is done with a packet at the end of a link than to send it on, or it may take a detour.
    // `kFetches`: the network is too large for the nearest caches, so that memory is asked ahead of events.
    template <Departures kDepartures, bool kWatched, bool kFetches>
    void run_events(std::int64_t limit, bool stop);
    template <Departures kDepartures>
    void run_all(std::int64_t limit, bool stop);
    template <Departures kDepartures, bool kWatched>
    [[gnu::always_inline]] inline bool arrive(std::uint32_t port, std::int64_t now);
    template <Departures kDepartures>
    [[nodiscard]] [[gnu::always_inline]] inline bool take(std::uint32_t port, std::int64_t now, std::uint32_t& id);
    [[nodiscard]] bool inspect(std::uint32_t port, std::uint32_t packet);
    void dispatch(std::uint32_t entity);
    void kick_nic_of(std::uint32_t port);
    [[gnu::always_inline]] inline void fetch_ahead();
    [[gnu::always_inline]] inline void fetch_first();
    void finish_ended();

    const Setup& setup_;
    Watcher& watcher_;
    std::int64_t deadlock_checked_ = 0;  ///< ps, when pauses were last searched for a circle
    bool fetches_ = false;
    std::uint64_t watch_next_ = kWatchInterval;  ///< number of the event at which to tell the watcher
};

}  // namespace orrery::network::packet
