#pragma once
// Algorithms of collectives: one file and one row each. An algorithm states the messages, and which must have arrived before
// each; it owns its parameters and says what it cannot do.

#include "workloads/collective/message_run.hpp"
#include "workloads/collective/rings.hpp"

#include <limits>

namespace orrery::collective {

// Collects messages and "b waits for a" pairs; builds the release lists at the end.
class ScheduleBuilder {
  public:
    std::uint32_t add(std::uint32_t from, std::uint32_t to, double bytes) {
        Message message;
        message.from = from;
        message.to = to;
        message.bytes = bytes;
        message.reduces = reducing_ ? 1 : 0;
        schedule_.messages.push_back(message);
        return static_cast<std::uint32_t>(schedule_.messages.size() - 1);
    }
    // An all-reduce of `bytes` of each member, inside the switches.
    std::uint32_t reduce(std::vector<std::uint32_t> members, double bytes) {
        const std::uint32_t id = add(members.front(), members.back(), bytes);
        schedule_.messages[id].group = static_cast<std::uint32_t>(schedule_.groups.size());
        schedule_.groups.push_back(std::move(members));
        return id;
    }
    /// Whether receivers of the messages that are added from now on add them to what they have.
    void set_reducing(bool reducing) { reducing_ = reducing; }
    void after(std::uint32_t before, std::uint32_t next) { edges_.push_back({before, next}); }

    Schedule finish() {
        for (const auto& [before, next] : edges_) {
            ++schedule_.messages[before].release_count;
            ++schedule_.messages[next].waits_for;
        }
        std::uint32_t first = 0;
        for (Message& message : schedule_.messages) {
            message.first_release = first;
            first += message.release_count;
        }
        schedule_.releases.resize(first);
        std::vector<std::uint32_t> filled(schedule_.messages.size(), 0);
        for (const auto& [before, next] : edges_) {
            schedule_.releases[schedule_.messages[before].first_release + filled[before]++] = next;
        }
        return std::move(schedule_);
    }

  private:
    Schedule schedule_;
    bool reducing_ = false;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
};

/// What an estimate of an algorithm goes by: a group of ranks that fill their nodes one after another.
struct GroupLinks {
    double ranks = 1;
    double per_node = 1;
    double inside_latency = 0;         ///< s, of a message inside a node
    double outside_latency = 0;        ///< s, between the first nodes
    double inside_rate = 0;            ///< B/s that a rank sends inside its node
    double nic_rate = 0;               ///< B/s into or out of one rank from outside its node
    double flow_rate = 0;              ///< B/s of one message between neighbouring nodes alone
    double node_rate = 0;              ///< B/s out of a node to its neighbour over all its NICs
    double all_rate = 0;               ///< B/s out of a node when all send to all
    std::vector<std::uint32_t> shape;  ///< ranks in each dimension; empty: no product

    [[nodiscard]] double nodes() const { return ranks / per_node; }
    /// s of a step in which each rank sends so many bytes to the next one; of a node only the last rank sends to another.
    [[nodiscard]] double ring_step(double bytes) const;
    /// s of a step in which each rank sends so many bytes to the equal one of a neighbouring node.
    [[nodiscard]] double rail_step(double bytes) const;
    /// s of a step in which each rank sends so many bytes to a rank so far away.
    [[nodiscard]] double step(double bytes, double distance) const;
};
inline constexpr double kNotServed = std::numeric_limits<double>::infinity();

/// One row of the table.
struct CollectiveAlgorithm {
    const char* name;
    const char* description;
    /// Names its own parameters; null: it has none.
    void (*describe)(Fields& fields, CollectiveSpec& spec);
    /// Most messages that a schedule over so many ranks in nodes of so many can have.
    double (*messages)(const CollectiveSpec& spec, double ranks, double per_node);
    /// Throws InfeasibleError for operations and numbers of ranks that it does not serve. Precondition: two ranks or more.
    void (*build)(ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node);
    /// About how long it takes, s; kNotServed where it does not serve. Null: `auto` never takes it.
    double (*estimate)(const CollectiveSpec& spec, const GroupLinks& links) = nullptr;
    /// The schedule in short, where every rank sends to the next ones at once. Null: it never does.
    Shifts (*shifts)(const CollectiveSpec& spec, std::uint32_t ranks) = nullptr;
    /// The same, where the schedule is rings. Null: it is not.
    Rings (*rings)(const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) = nullptr;
};
[[nodiscard]] const std::vector<const CollectiveAlgorithm*>& algorithm_table();

/// The schedule of one node for all, where every node of the fabric sees the same: algorithm per-dimension over all nodes of a torus
/// that is wrapped in every dimension, at fluid fidelity: analytic transfers take turns at a NIC, in an order of each node. Nothing
/// where that is not so.
[[nodiscard]] std::optional<Schedule> folded_torus(const CollectiveSpec& spec, const Fabric& fabric,
                                                   const Placement& placement, const MessageRunOptions& options);

// What several algorithms share.

inline constexpr std::uint32_t kNoMessage = 0xFFFFFFFFU;

/// A ring over `members`: `steps` messages of each to its successor. A message waits for the one that brought its data
/// and for the sender's previous one. `first_waits`: messages that must have arrived at member i before its first send.
/// Of the first `reducing` steps members add what reaches them. Returns the last message that reaches each member.
std::vector<std::uint32_t> add_ring(ScheduleBuilder& builder, const std::vector<std::uint32_t>& members, double bytes,
                                    std::uint32_t steps, const std::vector<std::uint32_t>& first_waits,
                                    std::uint32_t reducing);
/// From member to member, in so many pieces of `bytes`; `towards` the first member, and summed, instead of from it.
void add_chain(ScheduleBuilder& builder, const std::vector<std::uint32_t>& members, double bytes, std::int64_t pieces,
               bool towards);
/// The tree of algorithm `tree`: an in-order binary tree.
struct BinaryTree {
    std::uint32_t root = 0;
    std::vector<std::uint32_t> parent;  ///< by rank; of the root itself
    std::vector<std::vector<std::uint32_t>> children;
};
[[nodiscard]] BinaryTree binary_tree(std::uint32_t ranks);
/// Names the rank that has or gets the data, and what the payload is cut into.
void describe_root(Fields& fields, CollectiveSpec& spec);
void describe_chain(Fields& fields, CollectiveSpec& spec);
/// Throws InfeasibleError where there is no such rank.
void require_root(const CollectiveSpec& spec, std::uint32_t ranks);
/// Throws InfeasibleError for other operations.
void require_all_reduce(const CollectiveSpec& spec);
/// Steps of a ring of n in which sums are made.
[[nodiscard]] inline std::uint32_t reducing_steps(CollectiveOp op, std::uint32_t n) {
    return op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter ? n - 1 : 0;
}
/// True for all-reduce, all-gather and reduce-scatter.
[[nodiscard]] bool reduces_or_gathers(CollectiveOp op);
/// Throws InfeasibleError, with what the algorithm serves, when `served` is false.
void require_served(const CollectiveSpec& spec, bool served, const char* what);

}  // namespace orrery::collective
