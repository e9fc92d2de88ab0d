#include "workloads/collective/algorithms/algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

namespace {

// Reduce-scatter inside each node, all-reduce between equal local ranks (rails; a ring, or in the switches between the
// nodes), all-gather inside each node.
void add_hierarchical(ScheduleBuilder& builder, std::uint32_t n, std::uint32_t per_node, double bytes, bool in_switch) {
    const std::uint32_t nodes = n / per_node;
    std::vector<std::uint32_t> reached(n, kNoMessage);
    const auto inside = [&](const std::vector<std::uint32_t>& waits) {
        std::vector<std::uint32_t> out(n, kNoMessage);
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
    std::vector<std::uint32_t> between(n, kNoMessage);
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
                if (before != kNoMessage) {
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

void require_whole_nodes(const char* what, std::uint32_t ranks, std::uint32_t per_node) {
    if (ranks % per_node != 0) {
        throw InfeasibleError(
            fmt::format("{} all-reduce needs whole nodes: {} ranks in nodes of {}", what, ranks, per_node));
    }
}

}  // namespace

extern const CollectiveAlgorithm kHierarchicalAlgorithm = {
    "hierarchical", "rings inside the nodes, and one between equal local ranks", nullptr,
    [](const CollectiveSpec&, double ranks, double per_node) { return 2 * ranks * (per_node + ranks / per_node); },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
        require_all_reduce(spec);
        require_whole_nodes("a hierarchical", ranks, per_node);
        add_hierarchical(builder, ranks, per_node, spec.bytes, false);
    }};

extern const CollectiveAlgorithm kInSwitchAlgorithm = {
    "in-switch", "summed by the switch of a node, and by the switches between nodes", nullptr,
    [](const CollectiveSpec&, double ranks, double) { return 64 * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
        require_all_reduce(spec);
        if (ranks > per_node) {
            require_whole_nodes("an in-switch", ranks, per_node);
            add_hierarchical(builder, ranks, per_node, spec.bytes, true);
            return;
        }
        // Each rank pushes the payload to the switch and pulls the sum: all up and all down ports carry it once.
        for (std::uint32_t i = 0; i < ranks; ++i) {
            builder.add(i, (i + 1) % ranks, spec.bytes);
        }
    }};

}  // namespace orrery
