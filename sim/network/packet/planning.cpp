// Planned paths: messages that start together are spread over the spines so that no link carries more than it must.
//
// Claims: of messages of equal size that start at one instant on an idle fabric, no leaf-to-spine link carries more than
// ceil(d / spines), where d is the largest number of them that leave or enter a leaf; and with splitting exactly what
// spraying would put there, because every message is cut into the fewest parts that make d a multiple of the spines.
// How: messages are the edges of a bipartite graph from leaves to leaves; König's theorem colours them with d colours so
// that no two of one colour meet, and colours go round the spines. Later messages take the least loaded path.
// Limits: sizes are taken as equal; in a fat tree core switches are taken in turn. Sources: König, Math. Ann. 77, 1916.
// Validated by tests/sim/network/packet_paths_test.cpp.

#include "sim/network/packet/network.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::packet {

namespace {

struct Edge {
    std::uint32_t from;
    std::uint32_t to;
};

// Colours the edges of a bipartite multigraph with as many colours as its largest degree.
std::vector<std::uint32_t> colour_edges(const std::vector<Edge>& edges, std::uint32_t vertices, std::uint32_t colours) {
    std::vector<std::uint32_t> of_edge(edges.size(), kNone);
    const auto side = [&] { return std::vector<std::uint32_t>(static_cast<std::size_t>(vertices) * colours, kNone); };
    std::vector<std::uint32_t> at_from = side();
    std::vector<std::uint32_t> at_to = side();
    const auto slot = [&](std::vector<std::uint32_t>& table, std::uint32_t vertex,
                          std::uint32_t colour) -> std::uint32_t& {
        return table[static_cast<std::size_t>(vertex) * colours + colour];
    };
    const auto first_free = [&](std::vector<std::uint32_t>& table, std::uint32_t vertex) {
        std::uint32_t colour = 0;
        while (slot(table, vertex, colour) != kNone) {
            ++colour;
        }
        return colour;
    };
    std::vector<std::uint32_t> chain;
    for (std::uint32_t e = 0; e < edges.size(); ++e) {
        const std::uint32_t a = first_free(at_from, edges[e].from);
        const std::uint32_t b = first_free(at_to, edges[e].to);
        // Colour a is free at `from`. Along the path that leaves `to` with a, b, a, ... both colours change places; it
        // cannot come back to `from`, which it would have to enter with a.
        chain.clear();
        std::uint32_t colour = a;
        std::uint32_t next = a == b ? kNone : slot(at_to, edges[e].to, a);
        bool at_to_side = false;
        while (next != kNone) {
            chain.push_back(next);
            colour = colour == a ? b : a;
            next = at_to_side ? slot(at_to, edges[next].to, colour) : slot(at_from, edges[next].from, colour);
            at_to_side = !at_to_side;
        }
        for (const std::uint32_t c : chain) {
            slot(at_from, edges[c].from, of_edge[c]) = kNone;
            slot(at_to, edges[c].to, of_edge[c]) = kNone;
        }
        for (const std::uint32_t c : chain) {
            of_edge[c] = of_edge[c] == a ? b : a;
            slot(at_from, edges[c].from, of_edge[c]) = c;
            slot(at_to, edges[c].to, of_edge[c]) = c;
        }
        of_edge[e] = a;
        slot(at_from, edges[e].from, a) = e;
        slot(at_to, edges[e].to, a) = e;
    }
    return of_edge;
}

}  // namespace

void Network::plan_batch() {
    const std::vector<std::uint32_t> batch = std::move(unplanned_);
    unplanned_.clear();
    const auto leaves = static_cast<std::uint32_t>(pod_of_leaf_.size());
    std::vector<std::uint32_t> out(leaves, 0);
    std::vector<std::uint32_t> in(leaves, 0);
    const auto leaf_from = [&](std::uint32_t m) { return leaf_of_nic_[fabric_.nic_of(messages_[m].from)]; };
    const auto leaf_to = [&](std::uint32_t m) { return leaf_of_nic_[fabric_.nic_of(messages_[m].to)]; };
    std::vector<std::uint32_t> crossing;
    for (const std::uint32_t m : batch) {
        if (leaf_from(m) == leaf_to(m)) {
            begin_message(m, 1, {});
        } else {
            crossing.push_back(m);
            ++out[leaf_from(m)];
            ++in[leaf_to(m)];
        }
    }
    if (crossing.empty()) {
        return;
    }
    const std::uint32_t degree =
        std::max(*std::max_element(out.begin(), out.end()), *std::max_element(in.begin(), in.end()));
    const std::uint32_t needed = spec_.paths.split ? spines_ / std::gcd(degree, spines_) : 1;
    const std::uint32_t parts = needed * static_cast<std::uint32_t>(spec_.paths.subflows);
    const auto idle = [](const std::vector<std::uint32_t>& loads) {
        return std::all_of(loads.begin(), loads.end(), [](std::uint32_t load) { return load == 0; });
    };
    std::vector<std::uint32_t> colours;
    const double table = 2.0 * leaves * degree * parts;
    if (idle(planned_up_) && idle(planned_down_) && table < 5e7) {
        std::vector<Edge> edges;
        for (const std::uint32_t m : crossing) {
            edges.insert(edges.end(), parts, Edge{leaf_from(m), leaf_to(m)});
        }
        colours = colour_edges(edges, leaves, degree * parts);
    }
    std::vector<std::uint32_t> paths;
    for (std::size_t i = 0; i < crossing.size(); ++i) {
        const std::uint32_t m = crossing[i];
        const std::uint64_t packets = (messages_[m].bytes + mtu_ - 1) / mtu_;
        const auto of_message = static_cast<std::uint32_t>(std::min<std::uint64_t>(parts, packets));
        paths.clear();
        for (std::uint32_t part = 0; part < of_message; ++part) {
            std::uint32_t* up = &planned_up_[std::size_t{leaf_from(m)} * spines_];
            std::uint32_t* down = &planned_down_[std::size_t{leaf_to(m)} * spines_];
            std::uint32_t lane = 0;
            if (!colours.empty()) {
                lane = colours[i * parts + part] % spines_;
            } else {
                const auto load = [&](std::uint32_t s) { return std::pair(std::max(up[s], down[s]), up[s] + down[s]); };
                for (std::uint32_t s = 1; s < spines_; ++s) {
                    lane = load(s) < load(lane) ? s : lane;
                }
            }
            ++up[lane];
            ++down[lane];
            paths.push_back(entropy_of(lane, turn_[leaf_from(m)]++ % cores_));
        }
        begin_message(m, of_message, paths);
    }
}

}  // namespace orrery::packet
