// Several rings side by side: one for each NIC of a node, or one in each direction. Of broadcast and reduce each ring is a chain from
// or to the root, in pieces, as NCCL runs them over its channels.

#include "workloads/collective/algorithms/algorithm.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::collective {

namespace {

std::uint32_t channels_of(const CollectiveSpec& spec, double ranks, double per_node) {
    const auto most = static_cast<std::uint32_t>(std::min(ranks, per_node));
    return spec.channels > 0 ? static_cast<std::uint32_t>(spec.channels) : std::max(1U, most);
}

// Channel c enters a node at its GPU c and goes round it; every other node is gone round backwards, so that a ring leaves a
// node on the rail on which it enters the next.
std::vector<std::uint32_t> members_of(std::uint32_t channel, std::uint32_t ranks, std::uint32_t per_node) {
    std::vector<std::uint32_t> members;
    for (std::uint32_t first = 0; first < ranks; first += per_node) {
        const std::uint32_t here = std::min(per_node, ranks - first);
        const bool back = first / per_node % 2 == 1;
        for (std::uint32_t i = 0; i < here; ++i) {
            members.push_back(first + (channel + (back ? here - 1 - i : i)) % here);
        }
    }
    return members;
}

Rings rings_over(const CollectiveSpec& spec, std::vector<std::vector<std::uint32_t>> members) {
    const auto n = static_cast<std::uint32_t>(members.front().size());
    const double bytes = spec.bytes / static_cast<double>(members.size()) / n;
    return {std::move(members), bytes, (spec.op == CollectiveOp::all_reduce ? 2 : 1) * (n - 1)};
}

Rings many_rings(const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
    std::vector<std::vector<std::uint32_t>> members;
    for (std::uint32_t c = 0; c < channels_of(spec, ranks, per_node); ++c) {
        members.push_back(members_of(c, ranks, per_node));
    }
    return rings_over(spec, std::move(members));
}

Rings both_ways(const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
    std::vector<std::uint32_t> up(ranks);
    std::iota(up.begin(), up.end(), 0U);
    return rings_over(spec, {up, {up.rbegin(), up.rend()}});
}

template <Rings (*kRings)(const CollectiveSpec&, std::uint32_t, std::uint32_t)>
void build(ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
    require_served(spec, reduces_or_gathers(spec.op), "all-reduce, all-gather and reduce-scatter");
    const Rings rings = kRings(spec, ranks, per_node);
    for (const std::vector<std::uint32_t>& members : rings.members) {
        (void)add_ring(builder, members, rings.bytes, rings.steps, {}, reducing_steps(spec.op, ranks));
    }
}

bool chained(CollectiveOp op) {
    return op == CollectiveOp::broadcast || op == CollectiveOp::reduce;
}

// From rank to rank of each ring, from the root on or back to it.
void build_chains(ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
    require_root(spec, ranks);
    Rings rings = many_rings(spec, ranks, per_node);
    const double bytes = spec.bytes / static_cast<double>(rings.members.size()) / static_cast<double>(spec.pipeline);
    for (std::vector<std::uint32_t>& members : rings.members) {
        std::rotate(members.begin(), std::find(members.begin(), members.end(), static_cast<std::uint32_t>(spec.root)),
                    members.end());
        add_chain(builder, members, bytes, spec.pipeline, spec.op == CollectiveOp::reduce);
    }
}

void build_many(ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
    if (chained(spec.op)) {
        return build_chains(builder, spec, ranks, per_node);
    }
    require_served(spec, reduces_or_gathers(spec.op), "all-reduce, all-gather, reduce-scatter, broadcast and reduce");
    build<many_rings>(builder, spec, ranks, per_node);
}

// A GPU passes on a part of every ring, and the NICs of a node one each.
double chain_seconds(const CollectiveSpec& spec, const GroupLinks& links) {
    const auto pieces = static_cast<double>(spec.pipeline);
    if (links.nodes() == 1 || links.per_node == 1 || 2 * links.ranks * links.per_node * pieces > 2e6) {
        return kNotServed;
    }
    const double rings = channels_of(spec, links.ranks, links.per_node);
    const double piece = spec.bytes / pieces;  // of all rings
    return (links.ranks - 2 + pieces) *
           std::max(links.inside_latency + piece / links.inside_rate,
                    links.outside_latency + piece * links.per_node / rings / links.node_rate);
}

}  // namespace

extern const CollectiveAlgorithm kMultiRingAlgorithm = {
    "multi-ring",
    "one ring per GPU of a node, each over its own NIC, as NCCL's channels",
    [](Fields& fields, CollectiveSpec& spec) {
        fields.integer({"channels", "number of parallel rings; 0: one per GPU of a node", false, 0, 1024},
                       spec.channels);
        if (!fields.names_all() && chained(spec.op)) {  // the others name them for a schema
            describe_root(fields, spec);
            describe_chain(fields, spec);
        }
    },
    [](const CollectiveSpec& spec, double ranks, double per_node) {
        const double of_ring = chained(spec.op) ? 2 * ranks * static_cast<double>(spec.pipeline) : 2 * ranks * ranks;
        return of_ring * channels_of(spec, ranks, per_node);
    },
    build_many,
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        if (chained(spec.op)) {
            return chain_seconds(spec, links);
        }
        // Of more messages each is simulated for too long where they are not alike.
        if (!reduces_or_gathers(spec.op) || links.nodes() == 1 || links.per_node == 1 ||
            2 * links.ranks * links.ranks * links.per_node > 2e6) {
            return kNotServed;
        }
        const double part = spec.bytes / links.ranks;
        const double rounds = spec.op == CollectiveOp::all_reduce ? 2 : 1;
        return rounds * (links.ranks - 1) *
               std::max(links.inside_latency + part / links.inside_rate,
                        links.outside_latency + part / links.node_rate);
    },
    nullptr,
    many_rings};

extern const CollectiveAlgorithm kBidirectionalRingAlgorithm = {
    "bidirectional-ring",
    "two rings, one in each direction, with half the payload each",
    nullptr,
    [](const CollectiveSpec&, double ranks, double) { return 4 * ranks * ranks; },
    build<both_ways>,
    nullptr,
    nullptr,
    both_ways};

}  // namespace orrery::collective
