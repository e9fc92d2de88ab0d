#pragma once
// The packet engine: NICs, output-queued switches and links of a fabric, simulated packet by packet.
//
// Claims: every packet is stored and forwarded at each hop, waits behind what its port has accepted before, and arrives a
// link's latency after its last bit has left. Times are integer picoseconds; a port's rate is held to 2^-32 ps per byte and
// each packet's sending time is rounded once. Equal input gives equal results whatever the order of calls at an instant.
// How it is fast: one event a hop. A departure is known when a packet is queued (port.hpp), and packets of a link arrive in
// the order they were sent, so the wheel of events (clock.hpp) holds links and not packets.
// Parts, in the order in which a packet meets them: messages (message.hpp) become flows (flow.hpp), NICs send them (nic.hpp)
// over ports with queues and links (port.hpp), switches route them (routing.hpp) or add them up (reduction.hpp), NICs receive
// and answer (receiver.hpp); links fail (faults.hpp). What is fixed before the first packet is in setup.hpp.
// Scope: every topology; the inside of a node is not here (PacketModel leaves it to FluidModel).
// A queue's length counts bits that have not left; marks are set on arrival at a queue; acknowledgements share the links.
// Limits: cut-through switching and switch latency beyond the link's are not modelled; a message is at most 2^32 packets.
// Acknowledgements that come after a queue pair has gone on to its next message do not change what that one has taken over.
// Queues of a link whose rate has changed are reported as if it always had its present rate.
// Validated by tests/sim/network/packet_*_test.cpp.

#include "sim/network/packet/faults.hpp"
#include "sim/network/packet/receiver.hpp"
#include "sim/network/packet/reduction.hpp"
#include "sim/network/packet/routing.hpp"
#include "sim/network/packet/statistics.hpp"
#include "sim/network/packet/steady.hpp"

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace orrery::inline network::packet {

/// When ports decide on what leaves them: with each packet that is queued; when it would arrive; or each in its turn.
enum class Departures { known, decided_late, decided_in_turn };

class Network {
  public:
    /// Throws ConfigError when the specification contradicts itself, InfeasibleError when no fabric fits.
    /// `links_change`: set_rate() will be called, so ports decide each departure when it comes.
    Network(const Fabric& fabric, const PacketSpec& spec, std::uint64_t seed, bool links_change = false);

    /// Sends a message now. The clock is the later of the last event and the last `advance`.
    void send(const Request& request);
    void reduce(const ReductionRequest& request);
    /// Moves the clock forward over a time without events.
    void advance(std::int64_t now_ps);
    void add_link_event(const LinkEvent& event) { faults_.add(event); }
    /// From now on a port has `factor` times its normal rate; 0: its link is down. Ports are numbered as single links of
    /// the fabric from the first NIC's way out on.
    void set_rate(std::uint32_t port, double factor) {
        if (steady_) {
            steady_->go_on_all();
        }
        faults_.set_rate(port, factor);
        if (setup_.spec.failover) {
            routing_.look();
        }
    }
    /// Stops all messages of this token: nothing more of them is sent, and they do not complete. Returns what is missing at
    /// the receiver of the message that has most left, as a fraction of it. Precondition: no all-reduce in the switches.
    double cancel(std::uint64_t token);
    /// Paces messages at their shares of what lies outside the network. `rates`: units per second, by token; 0: no limit.
    void set_shares(const std::vector<double>& rates) { nics_.set_shares(rates); }

    /// Runs to `limit_ps` (included), or to the end of the first instant at which messages complete.
    void run(std::int64_t limit_ps);
    /// Time of the next event, Wheel::kNever when there is none.
    [[nodiscard]] std::int64_t next_time() const;
    [[nodiscard]] std::int64_t now() const { return clock_.now; }

    /// Tokens of the messages that completed in the last run(), in ascending order.
    [[nodiscard]] const std::vector<std::uint64_t>& completed() const { return messages_.completed(); }
    [[nodiscard]] std::size_t live_messages() const { return messages_.live(); }
    /// Throws InfeasibleError that names a message which can never finish; nothing to do when all have.
    void require_finished() const;

    [[nodiscard]] PacketStatistics statistics() const;
    [[nodiscard]] PacketReport report() const;
    [[nodiscard]] double payload_delivered() const { return flows_.counts.payload; }
    /// Bytes of all packet, flow and event records.
    [[nodiscard]] std::size_t memory() const;
    /// Called now and then with the payload bytes delivered so far.
    void set_progress(std::function<void(double)> progress) { progress_ = std::move(progress); }
    /// Data packets that senders, receivers and drops account for; equal once nothing is under way.
    [[nodiscard]] bool conserved() const {
        return flows_.counts.sent == flows_.counts.arrived + flows_.counts.destroyed && slab_.in_use() == 0;
    }

  private:
    static constexpr std::uint64_t kProgressInterval = 1U << 20;  // events

    // network.cpp
    template <Departures kDepartures>
    void run_events(std::int64_t limit);
    template <Departures kDepartures>
    [[gnu::always_inline]] inline bool arrive(std::uint32_t port);
    void dispatch(std::uint32_t entity);
    [[gnu::always_inline]] inline void fetch_ahead();
    void plan_batch();
    void watch();
    // report.cpp
    void start_samples();
    void sample();

    std::unique_ptr<Transport> transport_;
    std::unique_ptr<PathChooser> chooser_;
    Setup setup_;
    Clock clock_;
    Slab slab_;
    Flows flows_;
    Messages messages_;
    Ports ports_;
    Routing routing_;
    Nics nics_;
    Receivers receivers_;
    Reductions reductions_;
    Faults faults_;
    std::unique_ptr<Steady> steady_;  ///< none: every packet is simulated

    std::vector<std::uint32_t> unplanned_;  ///< messages that wait for a plan of their paths
    std::unordered_map<std::uint64_t, std::uint64_t>
        sent_between_;  ///< messages so far, by their pair, where each has its hash
    std::vector<QueueSample> samples_;
    std::int64_t sample_every_ = 0;      ///< ps; 0: never
    bool sampling_ = false;              ///< the next sample is in the heap
    std::int64_t deadlock_checked_ = 0;  ///< ps, when pauses were last searched for a circle
    std::function<void(double)> progress_;
    bool fetches_ = false;  ///< the network is too large for the nearest caches: memory is asked ahead of events
    std::uint64_t events_ = 0;
    std::uint64_t watch_next_ = kProgressInterval;  ///< number of the event at which to look again
    std::uint64_t watched_ = 0;                     ///< packets delivered when last looked
    std::int64_t watched_at_ = 0;                   ///< ps, when that number was new
    int idle_intervals_ = 0;                        ///< looks in a row that found no more
};

}  // namespace orrery::inline network::packet
