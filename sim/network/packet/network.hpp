#pragma once
// The packet engine: NICs, output-queued switches and links of a fabric, simulated packet by packet.
//
// Claims: every packet is stored and forwarded at each hop, waits behind what its port has accepted before, and arrives a
// link's latency after its last bit has left. Times are integer picoseconds; a port's rate is held to 2^-32 ps per byte and
// each packet's sending time is rounded once. Equal input gives equal results whatever the order of calls at an instant.
// How it is fast: one event a hop. A departure is known when a packet is queued (port.hpp), and packets of a link arrive in
// the order they were sent, so the wheel of events (clock.hpp) holds links and not packets.
// Modules, in the order in which a packet meets them: messages (message.hpp) become flows (flow.hpp), NICs send them (nic.hpp)
// over ports with queues and links (port.hpp), switches route them (routing.hpp) or add them up (reduction.hpp), NICs receive
// and answer (receiver.hpp); links fail (faults.hpp). What is fixed before the first packet is in setup.hpp.
// Several threads share a network by its leaves (parts.hpp), with the same results for any number of them.
// Scope: every topology; the inside of a node is not here (PacketModel leaves it to FluidModel).
// A queue's length counts bits that have not left; marks are set on arrival at a queue; acknowledgements share the links.
// Limits: cut-through switching and switch latency beyond the link's are not modelled; a message is at most 2^32 packets.
// Acknowledgements that come after a queue pair has gone on to its next message do not change what that one has taken over.
// Queues of a link whose rate has changed are reported as if it always had its present rate.
// Validated by tests/sim/network/packet_*_test.cpp.

#include "sim/network/packet/crew.hpp"
#include "sim/network/packet/statistics.hpp"

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace orrery::network::packet {

class Network final : private Watcher {
  public:
    /// Throws ConfigError when the specification contradicts itself, InfeasibleError when no fabric fits.
    /// `links_change`: set_rate() will be called, so ports decide each departure when it comes.
    /// `threads`: more than one shares the network; it then knows no reductions in switches, no cancel() and rates that are set
    /// before the first message.
    Network(const Fabric& fabric, const PacketSpec& spec, std::uint64_t seed, bool links_change = false,
            std::uint32_t threads = 1);

    /// Sends a message now. The clock is the later of the last event and the last `advance`.
    void send(const SendRequest& request);
    void reduce(const ReductionRequest& request);
    /// Moves the clock forward over a time without events.
    void advance(std::int64_t now_ps);
    void add_link_event(const TimedFault& event) { parts_[0]->faults.add(event); }
    /// From now on a port has `factor` times its normal rate; 0: its link is down. Ports are numbered as single links of
    /// the fabric from the first NIC's way out on.
    void set_rate(std::uint32_t port, double factor);
    /// Stops all messages of this token: nothing more of them is sent, and they do not complete. Returns what is missing at
    /// the receiver of the message that has most left, as a fraction of it. Precondition: no all-reduce in the switches.
    double cancel(std::uint64_t token);
    /// Paces messages at their shares of what lies outside the network. `rates`: units per second, by token; 0: no limit.
    void set_shares(const std::vector<double>& rates);
    /// Where threads share the network, run() no longer stops when messages complete: nobody sends any because of it.
    void run_ahead() { ahead_ = crew_ != nullptr; }
    /// Before the first message: when each goes is kept.
    void keep_spans() { messages_.keep_spans(); }
    /// By number of the message; empty unless kept.
    [[nodiscard]] const std::vector<MessageSpan>& spans() const { return messages_.spans(); }
    /// Times at which threads have waited for each other.
    [[nodiscard]] std::uint64_t steps() const { return crew_ ? crew_->side_by_side() : 0; }

    /// Runs to `limit_ps` (included), or to the end of the first instant at which messages complete.
    void run(std::int64_t limit_ps);
    /// Time of the next event, Wheel::kNever when there is none.
    [[nodiscard]] std::int64_t next_time() const;
    [[nodiscard]] std::int64_t now() const { return now_; }

    /// Tokens of the messages that completed in the last run(), by time, those of an instant in ascending order.
    [[nodiscard]] const std::vector<std::uint64_t>& completed() const { return completed_; }
    /// The same with their times.
    [[nodiscard]] const std::vector<Completion>& completions() const { return messages_.completed(); }
    [[nodiscard]] std::size_t live_messages() const { return messages_.live(); }
    /// Throws InfeasibleError that names a message which can never finish; nothing to do when all have.
    void require_finished() const;

    [[nodiscard]] PacketStatistics statistics() const;
    [[nodiscard]] PacketReport report() const;
    /// Bytes that a port has sent over what its link, at its normal rate, could carry from the start of the run to the last
    /// arrival: the `utilisation` of ports, of which `max_link_utilisation` is the largest.
    [[nodiscard]] double utilisation(std::uint32_t port) const;
    [[nodiscard]] double payload_delivered() const { return counts().payload; }
    /// Bytes of all packet, flow and event records.
    [[nodiscard]] std::size_t memory() const;
    /// Called now and then with the payload bytes delivered so far.
    void set_progress(std::function<void(double)> progress) { progress_ = std::move(progress); }
    /// Data packets that senders, receivers and drops account for; equal once nothing is under way.
    [[nodiscard]] bool conserved() const;

  private:
    // network.cpp
    void plan_batch();
    void watch(std::uint64_t delivered, double payload, std::int64_t now) override;
    void give_back_flows();
    // report.cpp
    [[nodiscard]] PacketCounts counts() const;
    [[nodiscard]] const Ports& ports_of(std::uint32_t port) const;
    [[nodiscard]] std::vector<FlowCounts> flow_counts() const;
    void start_samples();
    void sample() override;
    void sample_queues();
    void sample_flows();

    std::unique_ptr<Transport> transport_;
    Setup setup_;
    Parts division_;
    Messages messages_;
    std::vector<std::unique_ptr<Partition>> parts_;
    std::unique_ptr<Crew> crew_;  ///< none: one thread
    bool ahead_ = false;
    std::int64_t now_ = 0;  ///< ps

    std::vector<std::uint64_t> completed_;
    std::vector<std::uint32_t> retired_;    ///< flows whose slots parts may still name
    std::vector<std::uint32_t> unplanned_;  ///< messages that wait for a plan of their paths
    std::unordered_map<std::uint64_t, std::uint64_t>
        sent_between_;  ///< messages so far, by their pair, where each has its hash
    std::vector<QueueSample> samples_;
    std::vector<FlowSample> flow_samples_;  ///< tokens are those of the messages
    std::vector<FlowCounts> sampled_;       ///< by number of the message: at the last sample
    /// Samples of queues, and of flows.
    struct Samples {
        std::int64_t every = 0;  ///< ps; 0: never
        std::int64_t next = 0;   ///< ps
    };
    std::array<Samples, 2> sampling_;
    bool sampling_armed_ = false;  ///< the next sample is in the heap
    std::function<void(double)> progress_;
    std::uint64_t watched_ = 0;    ///< packets delivered when last looked
    std::int64_t watched_at_ = 0;  ///< ps, when that number was new
    int idle_intervals_ = 0;       ///< looks in a row that found no more
};

}  // namespace orrery::network::packet
