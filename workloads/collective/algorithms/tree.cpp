#include "workloads/collective/algorithms/algorithm.hpp"

#include <bit>
#include <cmath>

namespace orrery::collective {

namespace {

// An in-order binary tree on labels 1..n: odd labels are leaves.
std::uint32_t parent_label(std::uint32_t label, std::uint32_t n) {
    const std::uint32_t bit = label & (~label + 1);
    const std::uint32_t up = (label & ~bit) | (bit << 1);
    return up <= n ? up : label & ~bit;
}

// Reduction up a binary tree and broadcast down, cut into pieces that follow one another.
void add_tree(ScheduleBuilder& builder, std::uint32_t n, std::uint32_t shift, double bytes, std::uint32_t pieces) {
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
    std::vector<std::uint32_t> up(n + 1, kNoMessage);    // the last message of a label to its parent
    std::vector<std::uint32_t> down(n + 1, kNoMessage);  // the last message of a label's parent to it
    for (std::uint32_t piece = 0; piece < pieces; ++piece) {
        for (std::size_t i = order.size(); i-- > 1;) {
            const std::uint32_t label = order[i];
            builder.set_reducing(true);
            const std::uint32_t message = builder.add(rank_of(label), rank_of(parent_label(label, n)), piece_bytes);
            if (up[label] != kNoMessage) {
                builder.after(up[label], message);
            }
            for (const std::uint32_t child : children[label]) {
                builder.after(up[child], message);
            }
            up[label] = message;
        }
        builder.set_reducing(false);
        for (const std::uint32_t label : order) {
            for (const std::uint32_t child : children[label]) {
                const std::uint32_t message = builder.add(rank_of(label), rank_of(child), piece_bytes);
                if (down[child] != kNoMessage) {
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

void describe_pieces(Fields& fields, CollectiveSpec& spec) {
    fields.integer({"pipeline", "pieces that the payload is cut into", false, 1, 100'000}, spec.pipeline);
}

double messages_of(const CollectiveSpec& spec, double ranks, double) {
    return 4 * ranks * static_cast<double>(spec.pipeline);
}

}  // namespace

BinaryTree binary_tree(std::uint32_t ranks) {
    BinaryTree out;
    out.root = std::bit_floor(ranks) - 1;
    out.parent.resize(ranks, out.root);
    out.children.resize(ranks);
    for (std::uint32_t label = 1; label <= ranks; ++label) {
        if (label - 1 != out.root) {
            out.parent[label - 1] = parent_label(label, ranks) - 1;
            out.children[out.parent[label - 1]].push_back(label - 1);
        }
    }
    return out;
}

extern const CollectiveAlgorithm kTreeAlgorithm = {
    "tree", "reduction up a binary tree and broadcast down, in pieces", describe_pieces, messages_of,
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        require_all_reduce(spec);
        add_tree(builder, ranks, 0, spec.bytes, static_cast<std::uint32_t>(spec.pipeline));
    }};

extern const CollectiveAlgorithm kDoubleTreeAlgorithm = {
    "double-tree",
    "two trees with half the payload each (Sanders, Speck, Traeff, 2009)",
    describe_pieces,
    messages_of,
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        require_all_reduce(spec);
        // Shifted by one, the leaves of one tree are the inner nodes of the other.
        const auto pieces = static_cast<std::uint32_t>(spec.pipeline);
        add_tree(builder, ranks, 0, spec.bytes / 2, pieces);
        add_tree(builder, ranks, 1, spec.bytes / 2, pieces);
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        // An inner node sends and receives each piece of its tree three times, up once and down twice.
        const double pieces = static_cast<double>(spec.pipeline);
        const double step = links.ring_step(1.5 * spec.bytes / pieces);
        const double levels = std::ceil(std::log2(links.ranks));
        return spec.op == CollectiveOp::all_reduce ? (2 * levels + pieces - 1) * step : kNotServed;
    }};

}  // namespace orrery::collective
