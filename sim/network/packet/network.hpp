#pragma once
// The packet engine: NICs, output-queued switches and links of a fabric, simulated packet by packet.
//
// Claims: every packet is stored and forwarded at each hop, waits behind what its port has accepted before, and arrives a
// link's latency after its last bit has left. Times are integer picoseconds; a port's rate is held to 2^-32 ps per byte and
// each packet's sending time is rounded once. Equal input gives equal results whatever the order of calls at an instant.
// How it is fast: one event a hop. A departure is known when a packet is queued, from the time at which the port will be
// free, so a queue is a number. Packets of a link arrive in the order they were sent, so the wheel of events holds links
// and not packets. Ports serve packet by packet (one more event for each that waits) only where priorities, pause, a
// shared buffer or link events need it.
// Scope: leaf-spine and three-level fat trees; the inside of a node is not here (PacketModel leaves it to FluidModel).
// A queue's length counts bits that have not left; marks are set on arrival at a queue; acknowledgements share the links.
// Limits: cut-through switching and switch latency beyond the link's are not modelled; a message is at most 2^32 packets.
// Acknowledgements that come after a queue pair has gone on to its next message do not change what that one has taken over.
// Queues of a link whose rate has changed are reported as if it always had its present rate.
// Validated by tests/sim/network/packet_*_test.cpp.

#include "sim/base/random.hpp"
#include "sim/base/time.hpp"
#include "sim/network/fabric.hpp"
#include "sim/network/packet/records.hpp"
#include "sim/network/packet/reduction.hpp"
#include "sim/network/packet/spec.hpp"
#include "sim/network/packet/wheel.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace orrery {

/// Counts of a packet run. Hops: packets that have left a port, of NICs and switches.
struct PacketStatistics {
    std::uint64_t packets_delivered = 0;  ///< distinct data packets
    std::uint64_t packet_hops = 0;        ///< of data packets
    std::uint64_t control_hops = 0;       ///< of acknowledgements and their like
    std::uint64_t drops = 0;
    std::uint64_t trims = 0;
    std::uint64_t retransmissions = 0;
    std::uint64_t ecn_marks = 0;
    std::uint64_t timeouts = 0;
    std::uint64_t corrupted = 0;
    double pause_s = 0;          ///< summed over ports
    double max_queue_bytes = 0;  ///< the longest queue an arriving packet found
    double max_link_bytes = 0;   ///< on the busiest link between switches
    double max_link_utilisation = 0;
    std::uint64_t peak_packets = 0;  ///< in flight at once
    std::uint64_t events = 0;
};

/// One output port's share of a run.
struct PortReport {
    std::string name;
    double bytes = 0;
    std::uint64_t packets = 0;
    std::uint64_t marks = 0;
    std::uint64_t drops = 0;
    std::uint64_t trims = 0;
    double mean_queue_bytes = 0;
    double max_queue_bytes = 0;
    double paused_s = 0;
};

/// What a port's queue held at one time; times at which it held nothing are left out.
struct QueueSample {
    double time = 0;  ///< s
    std::uint32_t port = 0;
    double bytes = 0;
};

struct PacketReport {
    std::vector<PortReport> ports;
    std::vector<QueueSample> samples;  ///< in the order of time, then port
};
[[nodiscard]] std::string ports_csv(const PacketReport& report);
[[nodiscard]] std::string queues_csv(const PacketReport& report);

/// A change of one link, both directions.
struct LinkEvent {
    enum class What { down, up, rate, errors };
    enum class Link { leaf_spine, nic_leaf, spine_core };
    double time = 0;          ///< s
    std::uint32_t lower = 0;  ///< the leaf, the NIC, or the spine of the whole fabric
    std::uint32_t upper = 0;  ///< the spine of the leaf's pod, nothing, or the core switch among those of the spine
    What what = What::down;
    double factor = 1;  ///< rate: of the normal rate; errors: the link's bit error rate from now on
    Link link = Link::leaf_spine;
};

namespace packet {

/// A message to send from one NIC's GPU to another's.
struct Request {
    GpuId from;
    GpuId to;
    std::uint64_t bytes = 0;
    double rate_limit = 0;  ///< B/s; 0: none
    std::uint64_t token = 0;
    double weight = 0;  ///< payload bytes per unit of the share that set_shares() tells of; 0: it has none
    double share = 0;   ///< units per second, until set_shares() says otherwise; 0: no limit
};

/// An all-reduce in the switches over GPUs with NICs of their own.
struct ReductionRequest {
    std::vector<GpuId> members;
    std::uint32_t tree = 0;   ///< picks the root among spines and core switches
    std::uint64_t bytes = 0;  ///< of each member
    double rate_limit = 0;    ///< B/s of each; 0: none
    std::uint64_t token = 0;
    double weight = 0;  ///< as of a Request
    double share = 0;
};

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
    void add_link_event(const LinkEvent& event);
    /// From now on a port has `factor` times its normal rate; 0: its link is down. Ports are numbered as single links of
    /// the fabric from the first NIC's way out on.
    void set_rate(std::uint32_t port, double factor);
    /// Stops all messages of this token: nothing more of them is sent, and they do not complete. Returns what is missing at
    /// the receiver of the message that has most left, as a fraction of it. Precondition: no all-reduce in the switches.
    double cancel(std::uint64_t token);
    /// Paces messages at their shares of what lies outside the network. `rates`: units per second, by token; 0: no limit.
    void set_shares(const std::vector<double>& rates);

    /// Runs to `limit_ps` (included), or to the end of the first instant at which messages complete.
    void run(std::int64_t limit_ps);
    /// Time of the next event, Wheel::kNever when there is none.
    [[nodiscard]] std::int64_t next_time() const;
    [[nodiscard]] std::int64_t now() const { return now_; }

    /// Tokens of the messages that completed in the last run(), in ascending order.
    [[nodiscard]] const std::vector<std::uint64_t>& completed() const { return completed_; }
    [[nodiscard]] std::size_t live_messages() const { return live_messages_; }
    /// Throws InfeasibleError that names a message which can never finish; nothing to do when all have.
    void require_finished() const;

    [[nodiscard]] PacketStatistics statistics() const;
    [[nodiscard]] PacketReport report() const;
    [[nodiscard]] double payload_delivered() const { return payload_delivered_; }
    /// Bytes of all packet, flow and event records.
    [[nodiscard]] std::size_t memory() const;
    /// Called now and then with the payload bytes delivered so far.
    void set_progress(std::function<void(double)> progress) { progress_ = std::move(progress); }
    /// Data packets that senders, receivers and drops account for; equal once nothing is under way.
    [[nodiscard]] bool conserved() const { return sent_ == arrived_ + destroyed_ && slab_.in_use() == 0; }

  private:
    struct Nic {
        std::int64_t free_at = 0;        ///< ps, when the last data packet will have left
        std::int64_t next_message = 0;   ///< ps, when it can start another message
        std::int64_t last_message = 0;   ///< ps, when it starts the last one posted
        std::int64_t host_time = 0;      ///< ps by which the host has fed what was sent
        std::uint32_t sending = kNone;   ///< last of the ring of flows that may send
        std::uint32_t granting = kNone;  ///< receiver-driven: last of the ring of flows that want credits
        std::int64_t next_grant = 0;     ///< ps
        bool grant_armed = false;
    };
    struct Message {
        std::uint64_t token = 0;
        std::uint64_t hash = 0;
        GpuId from;
        GpuId to;
        std::uint64_t bytes = 0;
        double rate_limit = 0;
        double weight = 0;
        double share = 0;
        std::uint32_t parts = 0;   ///< subflows that have not finished
        std::uint32_t of_all = 1;  ///< subflows it began with
        bool live = false;
    };
    struct QueuePair {
        std::uint32_t first = kNone;  ///< flow that is being sent; the others follow by `next_in_pair`
        std::uint32_t last = kNone;
        CongestionState congestion;  ///< as the last message left it
        bool used = false;
    };
    struct Peers {                     ///< two NICs, one way
        std::vector<QueuePair> pairs;  ///< as many as have been used
        std::uint64_t turn = 0;
    };
    struct Limits {  ///< of the queues of one kind of port, as times to send
        std::int64_t drop = Wheel::kNever;
        std::int64_t mark_low = Wheel::kNever;
        std::int64_t mark_high = Wheel::kNever;
    };
    /// What kind of event an entity of the heap stands for; entities of the wheel come first.
    enum class Timer : std::uint32_t {
        wheel,
        start,
        pace,
        retransmit,
        congestion,
        pause,
        resume,
        link_event,
        reroute,
        grant,
        sample
    };
    static constexpr std::uint32_t kTimerShift = 28;

    // network.cpp: building, the loop, reports
    void add_ports(PortKind kind, std::uint32_t count, double rate, double latency_s);
    void index_ports();
    std::int64_t set_windows();
    void set_limits();
    void schedule(Timer timer, std::uint32_t index, std::int64_t at) {
        wheel_.insert_far((static_cast<std::uint32_t>(timer) << kTimerShift) | index, at);
    }
    void sample();
    [[nodiscard]] std::string port_name(std::uint32_t port) const;
    [[nodiscard]] std::int64_t send_time(const Port& port, std::uint32_t bytes) const {
        __extension__ using Wide = unsigned __int128;
        const auto ps = static_cast<std::int64_t>((static_cast<Wide>(port.ps_per_byte) * bytes + (1ULL << 31)) >> 32);
        return ps > 0 ? ps : 1;  // time must pass, or a sender would never stop
    }
    [[nodiscard]] double paused_seconds(std::uint32_t port) const;
    [[nodiscard]] double queue_bytes(const Port& port, std::int64_t backlog_ps) const;
    /// ps that means are over: timers that run out after the last message are no traffic.
    [[nodiscard]] std::int64_t elapsed() const { return live_messages_ == 0 && finished_at_ > 0 ? finished_at_ : now_; }

    // switching.cpp: links, ports, routing
    void dispatch(std::uint32_t entity);
    void watch();
    [[noreturn]] void fail_all(const std::string& why) const;
    [[gnu::always_inline]] inline void arrive(std::uint32_t port);
    [[nodiscard]] [[gnu::always_inline]] inline std::uint32_t next_port(const Port& in, const Packet& p);
    [[nodiscard]] [[gnu::always_inline]] inline std::uint32_t choose_spine(std::uint32_t leaf, std::uint32_t to_leaf,
                                                                           const Packet& p);
    [[nodiscard]] bool spoiled(std::uint32_t port, const Packet& p);
    void forward(std::uint32_t port, std::uint32_t id);
    [[gnu::always_inline]] inline void forward_now(std::uint32_t port, std::uint32_t id);
    [[gnu::always_inline]] inline void launch(std::uint32_t port, std::uint32_t id);
    void drop(std::uint32_t id);
    void discard(std::uint32_t id);
    void transmit(std::uint32_t port, std::uint32_t id);
    void enqueue_served(std::uint32_t port, std::uint32_t id);
    void serve(std::uint32_t port);
    void arm_service(std::uint32_t port);
    void leave_switch(std::uint32_t port, const Packet& p);
    [[nodiscard]] bool mark(std::int64_t backlog, std::int64_t low, std::int64_t high);
    void set_paused(std::uint32_t port, bool paused);
    [[nodiscard]] std::uint32_t switch_of(std::uint32_t port) const;

    // faults.cpp: links that change, ways round them, deadlock
    void apply_link_event(std::uint32_t index);
    void set_link(std::uint32_t port, const LinkEvent& event);
    void cut_link(std::uint32_t port);
    [[nodiscard]] std::uint32_t route_around(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t lane) const;
    [[nodiscard]] std::uint32_t live_core(std::uint32_t pod, std::uint32_t to_pod, std::uint32_t lane,
                                          std::uint32_t core) const;
    [[nodiscard]] bool reaches(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t lane) const;
    [[nodiscard]] std::uint32_t detour(const Port& in, std::uint32_t out, Packet& p) const;
    [[nodiscard]] std::int64_t at_nominal_rate(const Port& port, std::int64_t backlog) const;
    [[nodiscard]] std::vector<std::uint32_t> deadlocked_ports() const;
    void check_deadlock() const;

    // nic.cpp: senders
    /// `paths`: one a part; empty: by the hash.
    void begin_message(std::uint32_t message, std::uint32_t parts, const std::vector<std::uint32_t>& paths);
    std::uint32_t new_flow(std::uint32_t message, std::uint64_t bytes, std::uint64_t hash, std::uint32_t part);
    void post(std::uint32_t id, bool first);
    [[nodiscard]] std::int64_t posted_at(std::uint32_t nic, bool first);
    [[nodiscard]] std::uint32_t new_message();
    void give_bitmaps(Flow& flow, std::uint32_t capacity);
    void pass_on(std::uint32_t id);
    [[nodiscard]] QueuePair& pair_of(const Flow& flow) {
        return peers_[{flow.source, flow.destination}].pairs[flow.queue_pair];
    }
    void cancel_flow(std::uint32_t id);
    void leave_plan(const Flow& flow);
    [[nodiscard]] std::uint32_t nic_on_rail(GpuId gpu, std::uint32_t rail) const;
    void finish_part(std::uint32_t message);
    void retire(std::uint32_t id);
    void release_flow(std::uint32_t id);
    void start_flow(std::uint32_t id);
    void list(std::uint32_t id);
    void kick(std::uint32_t nic);
    void commit(std::uint32_t nic);
    [[nodiscard]] bool may_send(const Flow& flow) const;
    /// True when the flow may send another packet at once.
    bool send_packet(std::uint32_t id);
    [[nodiscard]] std::uint32_t first_lost(const Flow& flow) const;
    void adopt(std::uint32_t id);
    void limit(std::uint32_t id, double rate);
    [[nodiscard]] double limit_of(const Message& message) const;
    [[nodiscard]] std::uint32_t size_of(const Flow& flow, std::uint32_t sequence) const {
        return (sequence + 1 == flow.packets ? flow.last_payload : mtu_) + header_;
    }

    // feedback.cpp: what comes back to senders
    void on_acknowledgement(const Packet& p);
    void acknowledge(Flow& flow, std::uint32_t sequence, double& newly);
    void judge_gaps(std::uint32_t id);
    void on_report(const Packet& p);
    void on_notification(std::uint32_t id);
    void arm_congestion(std::uint32_t id);
    void touch_deadline(std::uint32_t id);
    [[nodiscard]] std::int64_t timeout_of(const Flow& flow) const;
    void on_timeout(std::uint32_t id);
    void on_congestion_timer(std::uint32_t id);
    void lose(Flow& flow, std::uint32_t sequence);
    [[noreturn]] void fail(const Flow& flow) const;

    // reduction.cpp: all-reduces in the switches
    void build_tree(Reduction& reduction, const std::vector<std::uint32_t>& nics, std::uint32_t number) const;
    void arrive_reducing(std::uint32_t port, std::uint32_t id);
    void contribute(Reduction& reduction, const TreeLink& link, const Packet& p);
    void spread_sum(Reduction& reduction, std::uint32_t at, const Packet& p);
    void take_sum(const Reduction& reduction, std::uint32_t member, const Packet& p);
    void emit(const Reduction& reduction, std::uint32_t port, const Packet& from);

    // receiver.cpp
    void deliver(std::uint32_t id);
    void receive_data(const Packet& p);
    void notify(const Packet& p);
    void reply(PacketKind kind, const Packet& data, std::uint8_t flags, std::uint64_t selected = 0);
    void acknowledge_untold(const Packet& p);
    void flow_received(std::uint32_t id);
    void want_credit(std::uint32_t id);
    void grant(std::uint32_t nic);

    void plan_batch();

    // Three bitmaps a flow, in a pool.
    enum class Bits : std::uint32_t { acknowledged, lost, received };
    [[nodiscard]] std::uint64_t& word(const Flow& flow, Bits kind, std::uint32_t sequence) {
        const std::uint32_t words = flow.capacity / 64;
        return bitmaps_[flow.bitmap + static_cast<std::uint32_t>(kind) * words + (sequence & (flow.capacity - 1)) / 64];
    }
    /// 64 bits from `sequence` on; those beyond the flow's capacity repeat earlier ones.
    [[nodiscard]] std::uint64_t bits_from(const Flow& flow, Bits kind, std::uint32_t sequence) {
        const unsigned shift = sequence & 63;
        const std::uint64_t low = word(flow, kind, sequence) >> shift;
        return shift == 0 ? low : low | (word(flow, kind, sequence + 64 - shift) << (64 - shift));
    }
    [[nodiscard]] bool test(const Flow& flow, Bits kind, std::uint32_t sequence) {
        return ((word(flow, kind, sequence) >> (sequence & 63)) & 1) != 0;
    }
    void set(const Flow& flow, Bits kind, std::uint32_t sequence) {
        word(flow, kind, sequence) |= 1ULL << (sequence & 63);
    }
    void clear(const Flow& flow, Bits kind, std::uint32_t sequence) {
        word(flow, kind, sequence) &= ~(1ULL << (sequence & 63));
    }

    const Fabric& fabric_;
    PacketSpec spec_;
    std::uint32_t mtu_;
    std::uint32_t header_;
    std::uint32_t full_;  ///< bytes of a full packet on the wire
    // Shape, kept flat for the hot path.
    std::uint32_t spines_ = 1;
    std::uint32_t cores_ = 1;
    bool tree_ = false;
    std::uint32_t base_[kPortKinds + 1] = {};  ///< first port of each kind
    std::vector<std::uint32_t> leaf_of_nic_;
    std::vector<std::uint32_t> pod_of_leaf_;
    PathSet path_set_;
    std::unique_ptr<PathChooser> paths_;
    std::unique_ptr<Transport> transport_;
    PathNeeds path_needs_;
    bool served_ = false;       ///< ports decide departures one by one
    bool acknowledged_ = true;  ///< false: ideal
    bool go_back_ = false;
    bool credited_ = false;
    bool notifies_ = false;      ///< receivers report marks
    bool counts_bytes_ = false;  ///< the transport wants to hear of each packet sent
    bool any_avoided_ = false;
    bool noisy_ = false;  ///< bit errors occur

    std::int64_t now_ = 0;
    Slab slab_;
    std::vector<Port> ports_;
    std::vector<ServedPort> served_ports_;
    std::vector<std::int64_t> switch_used_;  ///< bytes waiting in each switch, of shared buffers
    Limits limits_[kPortKinds];
    std::vector<Nic> nics_;
    std::vector<Flow> flows_;
    std::vector<std::uint32_t> free_flows_;
    std::vector<Message> messages_;
    std::vector<std::uint32_t> free_messages_;
    std::vector<Reduction> reductions_;
    std::vector<std::uint32_t> free_reductions_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, Peers> peers_;  ///< by source, destination
    std::vector<std::uint64_t> bitmaps_;
    std::vector<std::vector<std::uint32_t>> free_bitmaps_;  ///< by the logarithm of their capacity
    std::vector<std::uint32_t> unplanned_;                  ///< messages that wait for a plan
    std::vector<LinkEvent> link_events_;
    std::size_t link_events_left_ = 0;
    std::int64_t deadlock_checked_ = 0;    ///< ps, when pauses were last searched for a circle
    std::uint64_t nominal_[kPortKinds]{};  ///< 2^-32 ps per byte, by kind of port
    std::vector<double> error_rates_;      ///< by port, when bit errors occur
    std::vector<QueueSample> samples_;
    std::int64_t sample_every_ = 0;  ///< ps; 0: never
    bool sampling_ = false;          ///< the next sample is in the heap
    packet::CongestionSettings congestion_settings_;
    std::int64_t timeout_ = 0;           ///< ps
    std::int64_t notification_gap_ = 0;  ///< ps
    std::uint32_t reorder_ = 0;          ///< packets; 0: off
    std::uint32_t tell_every_ = 1;       ///< packets an acknowledgement
    std::uint32_t capacity_ = 256;       ///< most bits of a bitmap
    RandomStream marks_;
    RandomStream errors_;
    Wheel wheel_{1, 1};

    std::vector<std::uint64_t> completed_;
    std::size_t live_messages_ = 0;
    std::int64_t finished_at_ = 0;  ///< ps, when the last message so far completed
    std::function<void(double)> progress_;
    double payload_delivered_ = 0;
    std::uint64_t sent_ = 0, arrived_ = 0, destroyed_ = 0;  ///< data packets, whole or trimmed
    std::uint64_t watched_ = 0;                             ///< packets delivered when last looked
    std::int64_t watched_at_ = 0;                           ///< ps, when that number was new
    int idle_intervals_ = 0;                                ///< looks in a row that found no more
    std::uint64_t delivered_ = 0, retransmissions_ = 0, timeouts_ = 0, corrupted_ = 0, events_ = 0;
};

}  // namespace packet
}  // namespace orrery
