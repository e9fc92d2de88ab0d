#pragma once
// Collectives and traffic as messages: every message of a schedule is a flow on the fabric with its own dependencies.
//
// Claims: a schedule states for each message who sends how much to whom and which earlier messages must have
// arrived. The runner starts a message when its dependencies are met and counts every one. Equal messages of a
// symmetric ring are one class: a ring over whole nodes looks the same from each of them, so one node (or one group
// under a leaf) stands for all where the fabric has full bisection and sprays. On a wrapped torus one node stands for all. Of
// messages that all start at once (direct) one of each class stands for those that go alike (alike.hpp).
// Scope: the algorithms of workloads/collective/algorithms; permutation, incast, shift, all-to-all and ring traffic.
// Limits: no protocol overhead here (that is CollectiveModel's). Reductions cost no time unless a scenario asks for it
// (`in_memory`): then a rank that adds what has come reads both operands from its memory and writes the sum to it, all its
// additions share that memory, and what it sends on waits for them (gamma of Thakur et al., section 3, of a bound memory).
// Sources: Thakur et al., IJHPCA 2005; Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast",
// 2009; Patarasuk and Yuan, JPDC 2009 (ring).
// Validated by tests/workloads/collective_test.cpp: closed forms of every algorithm, folded = unfolded.

#include "sim/config/fields.hpp"
#include "sim/network/collective.hpp"
#include "sim/network/placement.hpp"
#include "sim/run/simulation.hpp"

#include <functional>
#include <optional>

namespace orrery::collective {

struct CollectiveAlgorithm;
/// The algorithm of this name. Precondition: the table has it.
[[nodiscard]] const CollectiveAlgorithm& algorithm(const std::string& name);

struct CollectiveSpec {
    CollectiveOp op = CollectiveOp::all_reduce;
    bool in_memory = false;  ///< sums read and write the memory of their rank; otherwise they cost no time
    const CollectiveAlgorithm* algorithm = &orrery::algorithm("auto");
    double bytes = 0;             ///< payload: the larger buffer of a rank
    std::int64_t ranks = 0;       ///< 0: every GPU
    std::int64_t pipeline = 32;   ///< pieces that trees cut the payload into
    std::int64_t channels = 0;    ///< of several rings side by side; 0: one a GPU of a node
    std::int64_t root = 0;        ///< of broadcast, reduce, gather and scatter
    std::string shape;            ///< ranks in each dimension, "4x4x8"; empty: those of the fabric
    std::string program;          ///< file with the steps of algorithm `program`
    std::int64_t slow_rank = -1;  ///< its outgoing link runs at `slow_factor`; -1: none
    double slow_factor = 1;
    std::string traffic_class;  ///< empty: the first of the network
};
void describe(Fields& fields, CollectiveSpec& spec);

enum class TrafficPattern { permutation, shift, incast, all_to_all, ring };
struct TrafficSpec {
    TrafficPattern pattern = TrafficPattern::permutation;
    std::string flows;          ///< file of flows, instead of a pattern (workloads/trace)
    double size = 0;            ///< bytes of each flow
    double spread = 0;          ///< sizes are uniform within size x (1 +- spread)
    std::int64_t shift = 1;     ///< shift: destination = source + shift
    std::int64_t senders = 0;   ///< incast: 0 = all but the receiver
    std::string traffic_class;  ///< empty: the first of the network
};
void describe(Fields& fields, TrafficSpec& spec);

/// One message, or (with a `group`) an all-reduce inside the switches. It starts when `waits_for` messages that name it among their `releases` have arrived; there may be more.
struct Message {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    double bytes = 0;
    double delay = 0;  ///< s, between the last arrival it waits for and its start
    std::uint32_t waits_for = 0;
    std::uint32_t first_release = 0;  ///< range in Schedule::releases
    std::uint32_t release_count : 27 = 0;
    std::uint32_t traffic_class : 4 = 0;
    std::uint32_t reduces : 1 = 0;   ///< its receiver adds it to what it has
    std::uint32_t group = kNoGroup;  ///< in Schedule::groups; also the number of its tree
    static constexpr std::uint32_t kNoGroup = 0xFFFFFFFFU;
};

/// A static schedule of messages between ranks 0..n-1 (rank = GPU).
struct Schedule {
    std::vector<Message> messages;
    std::vector<std::uint32_t> releases;
    std::vector<std::vector<std::uint32_t>> groups;  ///< ranks of all-reduces inside the switches, one per node
    /// Ranks of which one is simulated, because all send alike: what its neighbours send to it arrives as what it sends to them.
    std::uint32_t copies = 1;
};

/// The messages of a collective over `ranks` ranks in nodes of `per_node`. Throws InfeasibleError when the algorithm
/// does not apply (halving-doubling needs a power of two).
[[nodiscard]] Schedule make_schedule(const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node);
/// 40 bytes per message with its releases: throws InfeasibleError for what would not fit into an ordinary machine's memory.
void require_schedule_size(double messages);
[[nodiscard]] Schedule make_traffic(const TrafficSpec& spec, std::uint32_t ranks, std::uint64_t seed);

/// A schedule in which every rank sends as much to each of the next `count` ranks, all at once.
struct Shifts {
    std::uint32_t count = 0;  ///< 0: none
    double bytes = 0;
};

/// How messages are placed on the fabric, and the run that a schedule alone makes.
struct MessageRunOptions {
    RunSettings run;
    bool fold = true;  ///< use the symmetry of rings where it is proved
    PathChoice paths = PathChoice::spray;
    std::function<void(double)> progress;
    /// B/s of a GPU's memory, by group of the fabric, where sums take time; empty: they do not.
    std::vector<double> memories = {};
    std::uint8_t traffic_class = 0;  ///< of messages that no schedule stores
};

struct MessageRunResult {
    double seconds = 0;               ///< when the last message has arrived
    std::vector<double> starts;       ///< by message, s: when its dependencies were met
    std::vector<double> completions;  ///< by message, s; both empty where no schedule was stored
    std::uint64_t classes = 0;        ///< of messages that go alike, one of each simulated; 0: each message was
    std::uint64_t messages = 0;       ///< counted, folded ones times their number
    double bytes = 0;                 ///< on the wire
    std::uint64_t events = 0;
    std::uint64_t solves = 0;
    double wall_seconds = 0;          ///< of SimGrid's own run, without starting the process
    double max_link_utilisation = 0;  ///< bytes over capacity x time of the busiest resource
    std::uint32_t folded_into_one = 1;
    std::optional<PacketStatistics> packets;
    PacketReport ports;  ///< packets only
};

/// Messages as a job of a simulation.
class MessageRun {
  public:
    virtual ~MessageRun() = default;
    /// After the run, once. What belongs to the run as a whole (events, links, packets) is not in it.
    [[nodiscard]] virtual MessageRunResult result() = 0;
};
/// `schedule` outlives the run; `options.run` is that of the simulation.
[[nodiscard]] std::unique_ptr<MessageRun> add_messages(Simulation& simulation, const Placement& placement,
                                                       const Schedule& schedule, const MessageRunOptions& options,
                                                       SimTime start = SimTime());
/// A ring without a stored schedule. Precondition: two ranks or more.
[[nodiscard]] std::unique_ptr<MessageRun> add_ring(Simulation& simulation, const Placement& placement,
                                                   const CollectiveSpec& spec, std::uint32_t ranks,
                                                   const MessageRunOptions& options, SimTime start = SimTime());
/// Shifts without a stored schedule, at fidelity fluid or analytic. Where messages go alike (alike.hpp) and no other job shares the
/// fabric, one of each class stands for all of it. Precondition: count < ranks.
[[nodiscard]] std::unique_ptr<MessageRun> add_shifts(Simulation& simulation, const Placement& placement,
                                                     const Shifts& shifts, std::uint32_t ranks,
                                                     const MessageRunOptions& options, SimTime start = SimTime());

/// Runs what was added to a simulation of its own.
[[nodiscard]] MessageRunResult finish(Simulation& simulation, MessageRun& messages);
/// Runs a stored schedule alone.
[[nodiscard]] MessageRunResult run_messages(const Fabric& fabric, const Schedule& schedule,
                                            const MessageRunOptions& options);
/// Runs a stored schedule on SimGrid, in a child process. Sizes are rounded up to whole bytes.
[[nodiscard]] MessageRunResult run_messages_on_simgrid(const Fabric& fabric, const Schedule& schedule, PathChoice paths,
                                                       bool tightened = true);
/// Runs a ring collective without storing its messages: 33.5 million of them at 4,096 ranks.
[[nodiscard]] MessageRunResult run_ring(const Fabric& fabric, const CollectiveSpec& spec, std::uint32_t ranks,
                                        const MessageRunOptions& options);
/// Runs shifts alone.
[[nodiscard]] MessageRunResult run_shifts(const Fabric& fabric, const Shifts& shifts, std::uint32_t ranks,
                                          const MessageRunOptions& options);

}  // namespace orrery::collective
