#pragma once
// Steady stretches of a packet run, skipped: flows that share ports and whose rates no longer change go on by arithmetic.
//
// Claims: flows are observed in windows of several round trips. Where each flow of a group (all that share ports, directly or
// through others) had the same rate in three stretches of windows in a row, and as much under way, the group is held: its
// pending events are taken off the wheel, and nothing of it is simulated until the first of its flows is about to end, another
// flow comes to its ports, or something outside changes a flow of it. Then it goes on where it stood: every time in it moves by
// what has passed, every packet number by what its flow's rate brought in that time. What is under way, and all that transports
// have learnt, stay as they were. The last round trip of a flow is always simulated.
// A group that begins as one did before, alone on ports of the same kinds (phases.hpp), is held as soon as that one was steady.
// A flow's queues are part of what it has under way, so a queue that grows or drains shows there.
// Many flows that share ports (all-to-alls, steps between leaves) are never all steady one by one: a few packets more or less in a
// stretch are chance. Where single flows are not, the group is judged by its sums (steady_together.cpp).
// Error: the rates of the three stretches differ by a share s, those of sending and of answers by a, and their trends would have changed
// the rate by d in all that was skipped of a flow. Nothing is skipped where s / 2 + a / 2 + d would exceed the tolerance. Rounding
// to whole packets adds up to a packet of each flow every time, and chance some more: a group is held where what the packets before it have left of the
// tolerance pays for that, or where the stretch itself does and nothing can end it early. So the mean over all packets, which is
// reported, is within the tolerance whatever comes.
// Scope: every transport, every path choice, every fabric. Groups that lose packets are simulated, as are all flows
// while all-reduces in the switches run.
// Limits: marks and path choices are random in a steady state too; after a skip they go on with other random numbers. A flow that
// changes in cycles longer than what was observed is not steady, and one at the turn of such a cycle may be taken for it.
// Sources: freezing flow groups and moving them in time is the idea of arXiv:2602.10615; the details are our own.
// Validated by tests/sim/network/packet_steady_test.cpp: completion times against runs without it, for each transport.

#include "sim/network/packet/phases.hpp"
#include "sim/network/packet/receiver.hpp"
#include "sim/network/slots.hpp"

#include <vector>

namespace orrery::network::packet {

class Steady {
  public:
    Steady(const Setup& setup, Clock& clock, Slab& slab, Flows& flows, Ports& ports, Routing& routing, Nics& nics,
           Receivers& receivers, const Transport& transport);

    /// A flow is about to be posted, or one that was is about to change: what it shares ports with goes on, now.
    void tell(std::uint32_t flow, bool posted);
    /// An event of Timer::steady: kLook: the end of a window; kBegin: flows were posted at this instant; others: the time has come
    /// at which a group is known to be steady.
    void on_time(std::uint32_t index);
    /// The time that a held group was to be held until has come.
    void go_on(std::uint32_t group);
    void go_on_all();

    /// Packets that were not simulated; the sum over them of the relative error of their flow's rate.
    [[nodiscard]] std::uint64_t skipped() const { return skipped_; }
    [[nodiscard]] double error() const { return error_; }

  private:
    static constexpr std::uint32_t kLook = 0;
    static constexpr std::uint32_t kBegin = 1;
    static constexpr std::uint32_t kPlans = 2;
    static constexpr std::size_t kSnapshots = 52;  // then every other one is forgotten

    /// What a flow has sent and heard of at the end of a window.
    struct Snapshot {
        double at = 0;                   ///< ps
        double sent = 0, sent_at = 0;    ///< bytes; ps, when the last of them had left
        double heard = 0, heard_at = 0;  ///< bytes acknowledged; ps, when the sender heard so
        double under_way = 0;            ///< bytes
        double came = 0;                 ///< bytes that have reached the receiver
    };
    struct Track {
        Sharing::Ways ways;
        std::vector<Snapshot> past;
        std::uint64_t company = 0;    ///< which flows were in its group in the last window
        std::uint32_t group = kNone;  ///< that is held
        std::uint32_t received = 0;   ///< packets, when the observation of its group began
        std::uint64_t marks = 0;      ///< of them, where they are counted
        bool tracked = false;
        std::uint64_t number = 0;  ///< of the flow among all
        double rate = 0;           ///< B/s * 1e-12, of the last judgement
        double spread = 0;         ///< relative, of the rates of the three stretches
        double lag = 0;    ///< by how much its rate would have changed in all that was skipped, were its trends true
        double trend = 0;  ///< relative change of its rate per ps
        double doubt = 0;  ///< relative, of the rate at which it sent to that at which it was answered
        std::uint64_t key = 0;    ///< of the group that it began in; 0: it began among others
        std::uint32_t of = 0;     ///< flows in that group
        std::int64_t begun = 0;   ///< ps
        double steady_since = 0;  ///< ps, of the last judgement
        double residue = 0;       ///< bytes by which what was skipped lags behind the rate
        bool together = false;    ///< its last judgement was that of its group
    };
    struct Group {
        std::vector<std::uint32_t> flows;
        std::vector<std::uint32_t> bundles;
        std::vector<Wheel::Pending> events;
        std::uint64_t company = 0;
        double answers = 0;      ///< packets that receivers send for each of data
        std::int64_t since = 0;  ///< ps
        std::int64_t until = 0;  ///< ps
        double pledged = 0;      ///< of the error, packets: what its rounding may add
        bool open = false;       ///< may not be held: a flow that has not begun, or whose last packets are under way
        bool held = false;
    };

    /// Flows that began together, and are known to be steady soon.
    struct Plan {
        std::vector<std::uint32_t> flows;
        std::vector<std::uint64_t> numbers;
        std::uint64_t key = 0;
    };

    void look();
    // steady_begin.cpp
    void begin();
    void begin_group(std::vector<std::uint32_t> flows);
    void recall(std::uint32_t plan);
    void learn(const Group& group);
    [[nodiscard]] bool alone(const std::vector<std::uint32_t>& flows) const;
    [[nodiscard]] static bool goes_well(const Flow& flow) {
        return flow.live && flow.started && flow.lost == 0 && flow.backoff == 0 && !flow.speculates &&
               flow.received > 0;
    }
    void use(const Sharing::Ways& ways, std::uint32_t more);
    [[nodiscard]] double time_left(std::uint32_t flow) const;

    [[nodiscard]] std::vector<Group> groups();
    [[nodiscard]] bool observe(Group& group);
    [[nodiscard]] std::int64_t judge(const Group& group);
    [[nodiscard]] double judge(Track& track, const Flow& flow) const;
    [[nodiscard]] double judge(Track& track, const Snapshot* const (&ends)[4]) const;
    // steady_together.cpp
    /// What a group's flows send: of each, and how far from the truth that is.
    struct Together {
        std::vector<double> rates;  ///< bytes per ps, by flow of the group
        double mean = 0;            ///< of them
        double most = 0;            ///< ps that the group may be held
        double spread = 0;          ///< relative, of the sums of the three stretches
        double trend = 0;           ///< relative change of the sum per ps
        double noise = 0;           ///< bytes per ps, standard error of a flow's rate
        double doubt = 0;           ///< relative: more was sent than came, or less
        double spare = 0;           ///< what these leave of the tolerance
        double chance = 0;  ///< relative deviation of a NIC's rate in a time by chance, times the root of that time
    };
    [[nodiscard]] std::int64_t judge_together(const Group& group);
    [[nodiscard]] Together judge_together(const Group& group, const std::size_t (&ends)[4]) const;
    [[nodiscard]] std::int64_t next_look(const Group& group) const;
    /// What a flow does while its group is held for a time.
    struct Move {
        std::uint32_t packets = 0;
        double residue = 0;   ///< bytes by which it lags behind its rate then
        double rates = 0;     ///< packets of error by what is not known of its rate
        double rounding = 0;  ///< the same by whole packets
    };
    [[nodiscard]] std::vector<Move> moves(const Group& group, double time) const;
    void move_flows(const Group& group, double time);
    [[nodiscard]] bool affordable(Group& group);
    [[nodiscard]] Snapshot snapshot(std::uint32_t flow) const;
    void hold(std::vector<Group> some);
    void go_on_now(std::uint32_t group);
    void shift_ports(const Group& group, std::int64_t time);
    void shift_packet(std::uint32_t packet, std::int64_t time);
    [[nodiscard]] double answers_of(const Group& group) const;
    void count_skipped(const Group& group, std::int64_t time);
    [[nodiscard]] std::uint32_t holder_of(std::uint32_t entity) const;
    void arm(std::int64_t after);
    template <class Use>
    void each_port(const Group& group, const Use& use) {
        for (const std::uint32_t bundle : group.bundles) {
            for (std::uint32_t i = 0; i < sharing_.width(bundle); ++i) {
                use(bundle + i);
            }
        }
    }

    const Setup& setup_;
    Clock& clock_;
    Slab& slab_;
    Flows& flows_;
    Ports& ports_;
    Nics& nics_;
    Receivers& receivers_;
    Sharing sharing_;
    double tolerance_;
    std::int64_t window_;                ///< ps
    std::vector<Track> tracks_;          ///< by flow
    std::vector<std::uint32_t> active_;  ///< flows that are tracked
    std::vector<std::uint32_t> moved_;   ///< by flow of the group that goes on: packets skipped
    Slots<Group> held_;
    Phases phases_;
    std::vector<std::uint32_t> fresh_;  ///< flows posted at this instant
    Slots<Plan> plans_;
    std::vector<std::uint32_t> users_;       ///< by bundle: flows, with those whose last packets are under way
    std::vector<std::uint32_t> holder_;      ///< by port: the held group that it belongs to
    std::vector<Ports::Sent> since_;         ///< by port, when the observation of its group began
    std::vector<std::uint64_t> more_bytes_;  ///< by port of the group that goes on
    std::uint64_t number_ = 0;               ///< of flows so far
    bool armed_ = false;
    std::uint64_t skipped_ = 0;
    double error_ = 0;
    double pledged_ = 0;  ///< of all groups that are held
};

}  // namespace orrery::network::packet
