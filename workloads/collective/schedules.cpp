#include "sim/base/random.hpp"
#include "workloads/collective/message_run.hpp"

#include <fmt/format.h>

#include <bit>

namespace orrery {

const std::vector<std::string>& algorithm_names() {
    static const std::vector<std::string> kNames = {"ring",         "tree",      "double-tree", "halving-doubling",
                                                    "hierarchical", "in-switch", "direct"};
    return kNames;
}

void describe(Fields& fields, CollectiveSpec& spec) {
    fields.enumeration({"op", "the operation"}, collective_op_names(), spec.op);
    fields.enumeration({"algorithm", "the schedule of its messages"}, algorithm_names(), spec.algorithm);
    fields.quantity({"size", "payload: the larger buffer of a rank", true, 1, 1e18}, Dimension::bytes, spec.bytes);
    fields.integer({"ranks", "GPUs that take part; 0: all", false, 0, 4'000'000}, spec.ranks);
    fields.integer({"pipeline", "pieces that trees cut the payload into", false, 1, 100'000}, spec.pipeline);
    fields.integer({"slow_rank", "a rank whose outgoing link is slow (ring); -1: none", false, -1, 4'000'000},
                   spec.slow_rank);
    fields.number({"slow_factor", "rate of that link over its normal rate", false, 1e-6, 1}, spec.slow_factor);
}

void describe(Fields& fields, TrafficSpec& spec) {
    fields.enumeration({"pattern", "who sends to whom"}, {"permutation", "shift", "incast", "all-to-all", "ring"},
                       spec.pattern);
    fields.text({"flows", "instead of a pattern: a file of flows (CSV src,dst,bytes,start,after; or .cm)"}, spec.flows);
    fields.quantity({"size", "bytes of a flow", spec.flows.empty(), 1, 1e18}, Dimension::bytes, spec.size);
    fields.quantity({"spread", "sizes are uniform within size x (1 +- spread)", false, 0, 0.99}, Dimension::fraction,
                    spec.spread);
    fields.integer({"shift", "destination is source + shift", false, 1, 4'000'000}, spec.shift);
    fields.integer({"senders", "of an incast; 0: all but the receiver", false, 0, 4'000'000}, spec.senders);
}

namespace {

// Collects messages and "b waits for a" pairs; builds the release lists at the end.
class Builder {
  public:
    std::uint32_t add(std::uint32_t from, std::uint32_t to, double bytes) {
        Message message;
        message.from = from;
        message.to = to;
        message.bytes = bytes;
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
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
};

constexpr std::uint32_t kNone = 0xFFFFFFFFU;

// A ring over `members`: `steps` messages of each to its successor. A message waits for the one that brought its data
// and for the sender's previous one. `first_waits`: messages that must have arrived at member i before its first send.
// Returns the last message that reaches each member.
std::vector<std::uint32_t> add_ring(Builder& builder, const std::vector<std::uint32_t>& members, double bytes,
                                    std::uint32_t steps, const std::vector<std::uint32_t>& first_waits) {
    const auto n = static_cast<std::uint32_t>(members.size());
    std::vector<std::uint32_t> previous(n, kNone);
    std::vector<std::uint32_t> current(n, kNone);
    for (std::uint32_t step = 0; step < steps; ++step) {
        for (std::uint32_t i = 0; i < n; ++i) {
            current[i] = builder.add(members[i], members[(i + 1) % n], bytes);
            if (step == 0) {
                if (!first_waits.empty() && first_waits[i] != kNone) {
                    builder.after(first_waits[i], current[i]);
                }
            } else {
                builder.after(previous[i], current[i]);
                builder.after(previous[(i + n - 1) % n], current[i]);
            }
        }
        previous.swap(current);
    }
    std::vector<std::uint32_t> reached(n, kNone);
    for (std::uint32_t i = 0; i < n && steps > 0; ++i) {
        reached[i] = previous[(i + n - 1) % n];
    }
    return reached;
}

// An in-order binary tree on labels 1..n: odd labels are leaves.
std::uint32_t parent_label(std::uint32_t label, std::uint32_t n) {
    const std::uint32_t bit = label & (~label + 1);
    const std::uint32_t up = (label & ~bit) | (bit << 1);
    return up <= n ? up : label & ~bit;
}

// Reduction up a binary tree and broadcast down, cut into pieces that follow one another.
void add_tree(Builder& builder, std::uint32_t n, std::uint32_t shift, double bytes, std::uint32_t pieces) {
    const auto rank_of = [&](std::uint32_t label) { return (label - 1 + n - shift) % n; };
    const std::uint32_t root = std::bit_floor(n);
    std::vector<std::vector<std::uint32_t>> children(n + 1);
    std::vector<std::uint32_t> order;  // parents before children
    for (std::uint32_t label = 1; label <= n; ++label) {
        if (label != root) {
            children[parent_label(label, n)].push_back(label);
        }
    }
    order.push_back(root);
    for (std::size_t i = 0; i < order.size(); ++i) {
        order.insert(order.end(), children[order[i]].begin(), children[order[i]].end());
    }
    const double piece_bytes = bytes / pieces;
    std::vector<std::uint32_t> up(n + 1, kNone);    // the last message of a label to its parent
    std::vector<std::uint32_t> down(n + 1, kNone);  // the last message of a label's parent to it
    for (std::uint32_t piece = 0; piece < pieces; ++piece) {
        for (std::size_t i = order.size(); i-- > 1;) {
            const std::uint32_t label = order[i];
            const std::uint32_t message = builder.add(rank_of(label), rank_of(parent_label(label, n)), piece_bytes);
            if (up[label] != kNone) {
                builder.after(up[label], message);
            }
            for (const std::uint32_t child : children[label]) {
                builder.after(up[child], message);
            }
            up[label] = message;
        }
        for (const std::uint32_t label : order) {
            for (const std::uint32_t child : children[label]) {
                const std::uint32_t message = builder.add(rank_of(label), rank_of(child), piece_bytes);
                if (down[child] != kNone) {
                    builder.after(down[child], message);
                }
                if (label == root) {
                    for (const std::uint32_t arrived : children[root]) {
                        builder.after(up[arrived], message);
                    }
                } else {
                    builder.after(down[label], message);
                }
                down[child] = message;
            }
        }
    }
}

void add_halving_doubling(Builder& builder, CollectiveOp op, std::uint32_t n, double bytes) {
    const auto rounds = static_cast<std::uint32_t>(std::countr_zero(n));
    std::vector<std::uint32_t> received(n, kNone);
    std::vector<std::uint32_t> sent(n, kNone);
    const auto round = [&](std::uint32_t distance, double size) {
        std::vector<std::uint32_t> message(n);
        for (std::uint32_t i = 0; i < n; ++i) {
            message[i] = builder.add(i, i ^ distance, size);
            if (received[i] != kNone) {
                builder.after(received[i], message[i]);
                builder.after(sent[i], message[i]);
            }
        }
        for (std::uint32_t i = 0; i < n; ++i) {
            sent[i] = message[i];
            received[i] = message[i ^ distance];
        }
    };
    if (op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter) {
        for (std::uint32_t k = 1; k <= rounds; ++k) {
            round(n >> k, bytes / (1U << k));
        }
    }
    if (op == CollectiveOp::all_reduce || op == CollectiveOp::all_gather) {
        for (std::uint32_t k = rounds; k >= 1; --k) {
            round(n >> k, bytes / (1U << k));
        }
    }
}

// Reduce-scatter inside each node, all-reduce between equal local ranks (rails; a ring, or in the switches between the
// nodes), all-gather inside each node.
void add_hierarchical(Builder& builder, std::uint32_t n, std::uint32_t per_node, double bytes, bool in_switch) {
    const std::uint32_t nodes = n / per_node;
    std::vector<std::uint32_t> reached(n, kNone);
    const auto inside = [&](const std::vector<std::uint32_t>& waits) {
        std::vector<std::uint32_t> out(n, kNone);
        for (std::uint32_t node = 0; node < nodes && per_node > 1; ++node) {
            std::vector<std::uint32_t> members;
            std::vector<std::uint32_t> first;
            for (std::uint32_t i = 0; i < per_node; ++i) {
                members.push_back(node * per_node + i);
                first.push_back(waits[node * per_node + i]);
            }
            const auto last = add_ring(builder, members, bytes / per_node, per_node - 1, first);
            std::copy(last.begin(), last.end(), out.begin() + static_cast<std::ptrdiff_t>(node) * per_node);
        }
        return per_node > 1 ? out : waits;
    };
    reached = inside(reached);
    std::vector<std::uint32_t> between(n, kNone);
    for (std::uint32_t i = 0; i < per_node && nodes > 1; ++i) {
        std::vector<std::uint32_t> members;
        std::vector<std::uint32_t> first;
        for (std::uint32_t node = 0; node < nodes; ++node) {
            members.push_back(node * per_node + i);
            first.push_back(reached[node * per_node + i]);
        }
        std::vector<std::uint32_t> last;
        if (in_switch) {
            const std::uint32_t sum = builder.reduce(members, bytes / per_node);
            for (const std::uint32_t before : first) {
                if (before != kNone) {
                    builder.after(before, sum);
                }
            }
            last.assign(nodes, sum);
        } else {
            last = add_ring(builder, members, bytes / per_node / nodes, 2 * (nodes - 1), first);
        }
        for (std::uint32_t node = 0; node < nodes; ++node) {
            between[node * per_node + i] = last[node];
        }
    }
    (void)inside(nodes > 1 ? between : reached);
}

}  // namespace

// 40 bytes a message with its releases: refuse what would not fit into the memory of an ordinary machine.
static void require_size(double messages) {
    constexpr double kMost = 1e8;
    if (messages > kMost) {
        throw InfeasibleError(
            fmt::format("the schedule has {:.3g} messages; at most {:.3g} can be stored", messages, kMost));
    }
}

Schedule make_schedule(const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
    const double n = ranks;
    const bool trees = spec.algorithm == Algorithm::tree || spec.algorithm == Algorithm::double_tree;
    require_size(trees                                       ? 4 * n * static_cast<double>(spec.pipeline)
                 : spec.algorithm == Algorithm::hierarchical ? 2 * n * (per_node + n / per_node)
                 : spec.algorithm == Algorithm::halving_doubling || spec.algorithm == Algorithm::in_switch ? 64 * n
                                                                                                           : 2 * n * n);
    Builder builder;
    const bool all_reduce = spec.op == CollectiveOp::all_reduce;
    const auto only_all_reduce = [&] {
        if (!all_reduce) {
            throw InfeasibleError(fmt::format("algorithm {} serves all-reduce only",
                                              algorithm_names()[static_cast<std::size_t>(spec.algorithm)]));
        }
    };
    const auto pieces = static_cast<std::uint32_t>(spec.pipeline);
    if (ranks < 2) {
        return builder.finish();
    }
    switch (spec.algorithm) {
        case Algorithm::ring: {
            std::vector<std::uint32_t> members(ranks);
            for (std::uint32_t i = 0; i < ranks; ++i) {
                members[i] = i;
            }
            (void)add_ring(builder, members, spec.bytes / ranks, (all_reduce ? 2 : 1) * (ranks - 1), {});
            break;
        }
        case Algorithm::tree:
            only_all_reduce();
            add_tree(builder, ranks, 0, spec.bytes, pieces);
            break;
        case Algorithm::double_tree:
            only_all_reduce();
            // Shifted by one, the leaves of one tree are the inner nodes of the other.
            add_tree(builder, ranks, 0, spec.bytes / 2, pieces);
            add_tree(builder, ranks, 1, spec.bytes / 2, pieces);
            break;
        case Algorithm::halving_doubling:
            if (!std::has_single_bit(ranks)) {
                throw InfeasibleError(fmt::format("halving-doubling needs a power of two ranks, not {}", ranks));
            }
            if (spec.op == CollectiveOp::all_to_all || spec.op == CollectiveOp::send_recv) {
                only_all_reduce();
            }
            add_halving_doubling(builder, spec.op, ranks, spec.bytes);
            break;
        case Algorithm::hierarchical:
            only_all_reduce();
            if (ranks % per_node != 0) {
                throw InfeasibleError(fmt::format(
                    "a hierarchical all-reduce needs whole nodes: {} ranks in nodes of {}", ranks, per_node));
            }
            add_hierarchical(builder, ranks, per_node, spec.bytes, false);
            break;
        case Algorithm::in_switch:
            only_all_reduce();
            if (ranks > per_node) {
                if (ranks % per_node != 0) {
                    throw InfeasibleError(fmt::format(
                        "an in-switch all-reduce needs whole nodes: {} ranks in nodes of {}", ranks, per_node));
                }
                add_hierarchical(builder, ranks, per_node, spec.bytes, true);
                break;
            }
            // Each rank pushes the payload to the switch and pulls the sum: all up and all down ports carry it once.
            for (std::uint32_t i = 0; i < ranks; ++i) {
                builder.add(i, (i + 1) % ranks, spec.bytes);
            }
            break;
        case Algorithm::direct:
            if (spec.op == CollectiveOp::all_reduce) {
                throw InfeasibleError("algorithm direct serves all-to-all, all-gather and reduce-scatter");
            }
            for (std::uint32_t i = 0; i < ranks; ++i) {
                for (std::uint32_t k = 1; k < ranks; ++k) {
                    builder.add(i, (i + k) % ranks, spec.bytes / ranks);
                }
            }
            break;
    }
    return builder.finish();
}

Schedule make_traffic(const TrafficSpec& spec, std::uint32_t ranks, std::uint64_t seed) {
    Builder builder;
    RandomStream pairs(seed, "traffic/pairs");
    RandomStream sizes(seed, "traffic/sizes");
    const auto size = [&] {
        return spec.spread > 0 ? spec.size * (1 + spec.spread * (2 * sizes.uniform() - 1)) : spec.size;
    };
    if (ranks < 2) {
        throw InfeasibleError("traffic needs at least two hosts");
    }
    require_size(spec.pattern == TrafficPattern::all_to_all ? static_cast<double>(ranks) * ranks : ranks);
    switch (spec.pattern) {
        case TrafficPattern::permutation: {
            // Sattolo's algorithm: one cycle through all hosts, so nobody sends to itself.
            std::vector<std::uint32_t> to(ranks);
            for (std::uint32_t i = 0; i < ranks; ++i) {
                to[i] = i;
            }
            for (std::uint32_t i = ranks - 1; i > 0; --i) {
                std::swap(to[i], to[pairs.below(i)]);
            }
            for (std::uint32_t i = 0; i < ranks; ++i) {
                builder.add(i, to[i], size());
            }
            break;
        }
        case TrafficPattern::shift:
            if (spec.shift % ranks == 0) {
                throw InfeasibleError("a shift by a multiple of the number of hosts sends to itself");
            }
            for (std::uint32_t i = 0; i < ranks; ++i) {
                builder.add(i, static_cast<std::uint32_t>((i + spec.shift) % ranks), size());
            }
            break;
        case TrafficPattern::incast: {
            const auto senders = spec.senders > 0 ? static_cast<std::uint32_t>(spec.senders) : ranks - 1;
            if (senders >= ranks) {
                throw InfeasibleError(fmt::format("an incast of {} senders needs more than {} hosts", senders, ranks));
            }
            for (std::uint32_t i = 1; i <= senders; ++i) {
                builder.add(i, 0, size());
            }
            break;
        }
        case TrafficPattern::all_to_all:
            for (std::uint32_t i = 0; i < ranks; ++i) {
                for (std::uint32_t k = 1; k < ranks; ++k) {
                    builder.add(i, (i + k) % ranks, size());
                }
            }
            break;
        case TrafficPattern::ring:
            for (std::uint32_t i = 0; i < ranks; ++i) {
                builder.add(i, (i + 1) % ranks, size());
            }
            break;
    }
    return builder.finish();
}

}  // namespace orrery
