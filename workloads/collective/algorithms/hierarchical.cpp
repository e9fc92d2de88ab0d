#include "workloads/collective/algorithms/algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::inline collective {

namespace {

// The two parts of hierarchical collectives over n ranks in nodes of per_node: rings inside the nodes, and rings between
// equal local ranks (rails), or sums in the switches between the nodes. Each takes the messages that must have arrived at each
// rank before, and returns the last that reach it.
class Hierarchy {
  public:
    Hierarchy(ScheduleBuilder& builder, std::uint32_t n, std::uint32_t per_node, double bytes)
        : builder_(builder), n_(n), per_node_(per_node), nodes_(n / per_node), bytes_(bytes) {}

    using Messages = std::vector<std::uint32_t>;

    [[nodiscard]] Messages inside(const Messages& waits, bool reduces) {
        if (per_node_ == 1) {
            return waits;
        }
        Messages out(n_, kNoMessage);
        for (std::uint32_t node = 0; node < nodes_; ++node) {
            Messages members;
            Messages first;
            for (std::uint32_t i = 0; i < per_node_; ++i) {
                members.push_back(node * per_node_ + i);
                first.push_back(waits[node * per_node_ + i]);
            }
            const auto last =
                add_ring(builder_, members, bytes_ / per_node_, per_node_ - 1, first, reduces ? per_node_ - 1 : 0);
            std::copy(last.begin(), last.end(), out.begin() + static_cast<std::ptrdiff_t>(node) * per_node_);
        }
        return out;
    }

    [[nodiscard]] Messages between(const Messages& waits, std::uint32_t rounds, bool in_switch, bool reduces) {
        if (nodes_ == 1) {
            return waits;
        }
        Messages out(n_, kNoMessage);
        for (std::uint32_t i = 0; i < per_node_; ++i) {
            Messages members;
            Messages first;
            for (std::uint32_t node = 0; node < nodes_; ++node) {
                members.push_back(node * per_node_ + i);
                first.push_back(waits[node * per_node_ + i]);
            }
            Messages last;
            if (in_switch) {
                const std::uint32_t sum = builder_.reduce(members, bytes_ / per_node_);
                for (const std::uint32_t before : first) {
                    if (before != kNoMessage) {
                        builder_.after(before, sum);
                    }
                }
                last.assign(nodes_, sum);
            } else {
                last = add_ring(builder_, members, bytes_ / n_, rounds * (nodes_ - 1), first, reduces ? nodes_ - 1 : 0);
            }
            for (std::uint32_t node = 0; node < nodes_; ++node) {
                out[node * per_node_ + i] = last[node];
            }
        }
        return out;
    }

    // All-to-all: inside a node each rank gets what goes to ranks of its number, and sends it on, node by node.
    void exchange() {
        std::vector<Messages> arrive(n_);
        for (std::uint32_t rank = 0; rank < n_; ++rank) {
            for (std::uint32_t k = 1; k < per_node_; ++k) {
                const std::uint32_t to = rank / per_node_ * per_node_ + (rank + k) % per_node_;
                arrive[to].push_back(builder_.add(rank, to, bytes_ / per_node_));
            }
        }
        for (std::uint32_t rank = 0; rank < n_; ++rank) {
            for (std::uint32_t k = 1; k < nodes_; ++k) {
                const std::uint32_t message = builder_.add(rank, (rank + k * per_node_) % n_, bytes_ / nodes_);
                for (const std::uint32_t before : arrive[rank]) {
                    builder_.after(before, message);
                }
            }
        }
    }

  private:
    ScheduleBuilder& builder_;
    std::uint32_t n_;
    std::uint32_t per_node_;
    std::uint32_t nodes_;
    double bytes_;
};

void add_hierarchical(ScheduleBuilder& builder, CollectiveOp op, std::uint32_t n, std::uint32_t per_node, double bytes,
                      bool in_switch) {
    Hierarchy hierarchy(builder, n, per_node, bytes);
    Hierarchy::Messages reached(n, kNoMessage);
    switch (op) {
        case CollectiveOp::all_reduce:
            (void)hierarchy.inside(hierarchy.between(hierarchy.inside(reached, true), 2, in_switch, true), false);
            break;
        case CollectiveOp::reduce_scatter:
            (void)hierarchy.between(hierarchy.inside(reached, true), 1, false, true);
            break;
        case CollectiveOp::all_gather:
            (void)hierarchy.inside(hierarchy.between(reached, 1, false, false), false);
            break;
        default:
            hierarchy.exchange();
            break;
    }
}

bool serves(CollectiveOp op) {
    return reduces_or_gathers(op) || op == CollectiveOp::all_to_all;
}

void require_whole_nodes(const char* what, std::uint32_t ranks, std::uint32_t per_node) {
    if (ranks % per_node != 0) {
        throw InfeasibleError(
            fmt::format("{} collective needs whole nodes: {} ranks in nodes of {}", what, ranks, per_node));
    }
}

}  // namespace

extern const CollectiveAlgorithm kHierarchicalAlgorithm = {
    "hierarchical",
    "inside the nodes, and between equal local ranks",
    nullptr,
    [](const CollectiveSpec&, double ranks, double per_node) { return 2 * ranks * (per_node + ranks / per_node); },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
        require_served(spec, serves(spec.op), "all-reduce, all-gather, reduce-scatter and all-to-all");
        require_whole_nodes("a hierarchical", ranks, per_node);
        add_hierarchical(builder, spec.op, ranks, per_node, spec.bytes, false);
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        const double r = links.per_node;
        if (!serves(spec.op) || std::floor(links.nodes()) != links.nodes() || r == 1 || links.nodes() == 1) {
            return kNotServed;
        }
        if (spec.op == CollectiveOp::all_to_all) {
            return links.inside_latency + spec.bytes * (r - 1) / r / links.inside_rate + links.outside_latency +
                   spec.bytes * (1 - 1 / links.nodes()) * r / links.all_rate;
        }
        const double rounds = spec.op == CollectiveOp::all_reduce ? 2 : 1;
        return rounds * ((r - 1) * (links.inside_latency + spec.bytes / r / links.inside_rate) +
                         (links.nodes() - 1) * links.rail_step(spec.bytes / links.ranks));
    }};

extern const CollectiveAlgorithm kInSwitchAlgorithm = {
    "in-switch", "summed by the switch of a node, and by the switches between nodes", nullptr,
    [](const CollectiveSpec&, double ranks, double) { return 64 * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
        require_all_reduce(spec);
        if (ranks > per_node) {
            require_whole_nodes("an in-switch", ranks, per_node);
            add_hierarchical(builder, spec.op, ranks, per_node, spec.bytes, true);
            return;
        }
        // Each rank pushes the payload to the switch and pulls the sum: all up and all down ports carry it once.
        for (std::uint32_t i = 0; i < ranks; ++i) {
            builder.add(i, (i + 1) % ranks, spec.bytes);
        }
    }};

}  // namespace orrery::inline collective
