#include "workloads/collective/algorithms/algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace orrery::collective {

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

    // From the root to all, or from all to it (`towards`). The ranks of the root's node share the data out, each sends its share to the
    // ranks of its number on other nodes, and, where all get all, those of a node give theirs to each other.
    void from_root(std::uint32_t root, bool towards, bool parts) {
        towards_ = towards;
        builder_.set_reducing(towards && !parts);
        const std::uint32_t home = root / per_node_;
        std::vector<Messages> before(
            n_);  // what a rank's messages of the next stage wait for, in the direction of the data
        const auto within = [&](std::uint32_t node, bool shares) {
            std::vector<Messages> after(n_);
            for (std::uint32_t i = 0; i < per_node_; ++i) {
                const std::uint32_t giver = node * per_node_ + i;
                for (std::uint32_t k = 1; k < per_node_ && (!shares || giver == root); ++k) {
                    const std::uint32_t to = node * per_node_ + (i + k) % per_node_;
                    if (shares || towards_ || to != root) {  // which has it all
                        const Messages& waits = before[towards_ ? to : giver];
                        after[towards_ ? giver : to].push_back(add(giver, to, bytes_ / per_node_, waits));
                    }
                }
            }
            for (std::uint32_t rank = node * per_node_; rank < (node + 1) * per_node_; ++rank) {
                before[rank].insert(before[rank].end(), after[rank].begin(), after[rank].end());
            }
        };
        const auto everywhere = [&] {
            for (std::uint32_t node = 0; node < nodes_ && !parts; ++node) {
                within(node, false);
            }
        };
        if (towards) {
            everywhere();
            rails(home, parts, before);
            within(home, true);
        } else {
            within(home, true);
            rails(home, parts, before);
            everywhere();
        }
    }

  private:
    // A message in the direction of the data away from the root, or the other way. `waits`: what must have come to its sender.
    std::uint32_t add(std::uint32_t giver, std::uint32_t to, double bytes, const Messages& waits) {
        const std::uint32_t message = towards_ ? builder_.add(to, giver, bytes) : builder_.add(giver, to, bytes);
        for (const std::uint32_t one : waits) {
            builder_.after(one, message);
        }
        return message;
    }

    // Between the nodes: to each its part at once, or all to all of them by a binomial tree.
    void rails(std::uint32_t home, bool parts, std::vector<Messages>& before) {
        struct Hop {
            std::uint32_t giver, to;
        };
        std::vector<Hop> hops;
        if (parts) {
            for (std::uint32_t k = 1; k < nodes_; ++k) {
                hops.push_back({0, k});
            }
        } else {
            for (std::uint32_t distance = std::bit_ceil(nodes_) / 2; distance >= 1; distance /= 2) {
                for (std::uint32_t i = 0; i + distance < nodes_; i += 2 * distance) {
                    hops.push_back({i, i + distance});
                }
            }
        }
        if (towards_) {
            std::reverse(hops.begin(), hops.end());
        }
        for (std::uint32_t i = 0; i < per_node_; ++i) {
            const auto rank = [&](std::uint32_t node) { return (home + node) % nodes_ * per_node_ + i; };
            for (const Hop& hop : hops) {
                const std::uint32_t giver = rank(hop.giver);
                const std::uint32_t to = rank(hop.to);
                const std::uint32_t message =
                    add(giver, to, parts ? bytes_ / n_ : bytes_ / per_node_, before[towards_ ? to : giver]);
                before[towards_ ? giver : to].push_back(message);
                if (!towards_ && !parts) {
                    before[giver].push_back(message);  // one after another
                }
            }
        }
    }

    bool towards_ = false;
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

bool serves_by_levels(CollectiveOp op) {
    return op != CollectiveOp::send_recv;
}

bool rooted(CollectiveOp op) {
    return serves_by_levels(op) && !reduces_or_gathers(op) && op != CollectiveOp::all_to_all;
}

bool of_parts(CollectiveOp op) {
    return op == CollectiveOp::gather || op == CollectiveOp::scatter;
}

double rooted_seconds(const CollectiveSpec& spec, const GroupLinks& links) {
    const double r = links.per_node;
    const double inside = links.inside_latency + spec.bytes * (r - 1) / r / links.inside_rate;
    if (of_parts(spec.op)) {
        return inside + links.rail_step(spec.bytes * (links.nodes() - 1) / links.ranks);
    }
    const double levels = std::ceil(std::log2(links.nodes()));
    return 2 * inside + (levels > 0 ? levels * links.rail_step(spec.bytes / r) : 0);
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
    "steps inside nodes, and between equal local ranks of nodes",
    [](Fields& fields, CollectiveSpec& spec) {
        if (!fields.names_all() && rooted(spec.op)) {  // others name it for a schema
            describe_root(fields, spec);
        }
    },
    [](const CollectiveSpec&, double ranks, double per_node) { return 2 * ranks * (per_node + ranks / per_node); },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
        require_served(spec, serves_by_levels(spec.op), "all operations but send-recv");
        require_whole_nodes("a hierarchical", ranks, per_node);
        if (rooted(spec.op)) {
            require_root(spec, ranks);
            Hierarchy(builder, ranks, per_node, spec.bytes)
                .from_root(static_cast<std::uint32_t>(spec.root),
                           spec.op == CollectiveOp::gather || spec.op == CollectiveOp::reduce, of_parts(spec.op));
            return;
        }
        add_hierarchical(builder, spec.op, ranks, per_node, spec.bytes, false);
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        const double r = links.per_node;
        // In one node it is a scatter and an exchange.
        const bool shares_out = rooted(spec.op) && !of_parts(spec.op);
        if (!serves_by_levels(spec.op) || std::floor(links.nodes()) != links.nodes() || r == 1 ||
            (links.nodes() == 1 && !shares_out)) {
            return kNotServed;
        }
        if (rooted(spec.op)) {
            return rooted_seconds(spec, links);
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
    "in-switch", "sums in the switch of a node and in the switches between nodes", nullptr,
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

}  // namespace orrery::collective
