// Planned paths: messages that start together are spread over the spines so that no link carries more than it must.
//
// Claims: of messages of equal size that start at one instant on an idle fabric, no leaf-to-spine link carries more than
// ceil(d / spines), where d is the largest number of them that leave or enter a leaf; and with splitting exactly what
// spraying would put there, because every message is cut into the fewest parts that make d a multiple of the spines.
// How: messages are the edges of a bipartite graph from leaves to leaves; König's theorem colours them with d colours so
// that no two of one colour meet, and colours go round the spines. Later messages take the least loaded path.
// Limits: sizes are taken as equal; in a fat tree core switches are taken in turn. Sources: König, Math. Ann. 77, 1916.
// Validated by tests/sim/network/packet_paths_test.cpp.

#include "sim/base/error.hpp"
#include "sim/network/path/path.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::network::packet {

namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFFU;

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
            ORRERY_ASSERT(colour < colours);
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
        ORRERY_ASSERT(slot(at_from, edges[e].from, a) == kNone && slot(at_to, edges[e].to, a) == kNone);
        of_edge[e] = a;
        slot(at_from, edges[e].from, a) = e;
        slot(at_to, edges[e].to, a) = e;
    }
    return of_edge;
}

class Planned final : public PathChooser {
  public:
    struct Parameters {
        bool split = true;  ///< messages into parts, where that is needed to reach the load of spraying
        void describe(Fields& fields) {
            fields.boolean({"split", "planned: split flows where that reaches the load of spraying"}, split);
        }
    };
    explicit Planned(const Parameters& own) : own_(own) {}

    [[nodiscard]] PathNeeds needs() const override { return {.one_path = true, .plans = true}; }
    void begin(const PathSet& paths) override {
        PathChooser::begin(paths);
        const std::size_t links = std::size_t{paths.leaves} * paths.spines;
        up_.assign(links, 0);
        down_.assign(links, 0);
        turn_.assign(paths.leaves, 0);
    }
    [[nodiscard]] std::vector<std::vector<std::uint32_t>> plan(const std::vector<PlannedMessage>& messages,
                                                               std::uint32_t subflows) override {
        std::vector<std::uint32_t> out(paths_.leaves, 0);
        std::vector<std::uint32_t> in(paths_.leaves, 0);
        for (const PlannedMessage& m : messages) {
            ++out[m.from_leaf];
            ++in[m.to_leaf];
        }
        const std::uint32_t degree =
            std::max(*std::max_element(out.begin(), out.end()), *std::max_element(in.begin(), in.end()));
        const std::uint32_t needed = own_.split ? paths_.spines / std::gcd(degree, paths_.spines) : 1;
        const std::uint32_t parts = needed * subflows;
        std::vector<std::uint32_t> colours;
        const double table = 2.0 * paths_.leaves * degree * parts;
        if (idle(up_) && idle(down_) && table < 5e7) {
            std::vector<Edge> edges;
            for (const PlannedMessage& m : messages) {
                edges.insert(edges.end(), parts, Edge{m.from_leaf, m.to_leaf});
            }
            colours = colour_edges(edges, paths_.leaves, degree * parts);
        }
        std::vector<std::vector<std::uint32_t>> entropies(messages.size());
        for (std::size_t i = 0; i < messages.size(); ++i) {
            const PlannedMessage& m = messages[i];
            const auto of_message = static_cast<std::uint32_t>(std::min<std::uint64_t>(parts, m.packets));
            for (std::uint32_t part = 0; part < of_message; ++part) {
                const std::uint32_t lane =
                    colours.empty() ? least_loaded(m) : colours[i * parts + part] % paths_.spines;
                ++up_[m.from_leaf * paths_.spines + lane];
                ++down_[m.to_leaf * paths_.spines + lane];
                entropies[i].push_back(paths_.entropy(lane, turn_[m.from_leaf]++ % paths_.cores));
            }
        }
        return entropies;
    }
    void left(std::uint32_t from_leaf, std::uint32_t to_leaf, std::uint32_t entropy) override {
        ORRERY_ASSERT(up_[from_leaf * paths_.spines + paths_.lane(entropy)] > 0);
        ORRERY_ASSERT(down_[to_leaf * paths_.spines + paths_.lane(entropy)] > 0);
        --up_[from_leaf * paths_.spines + paths_.lane(entropy)];
        --down_[to_leaf * paths_.spines + paths_.lane(entropy)];
    }

  private:
    [[nodiscard]] static bool idle(const std::vector<std::uint32_t>& loads) {
        return std::all_of(loads.begin(), loads.end(), [](std::uint32_t load) { return load == 0; });
    }
    [[nodiscard]] std::uint32_t least_loaded(const PlannedMessage& m) const {
        const std::uint32_t* up = &up_[std::size_t{m.from_leaf} * paths_.spines];
        const std::uint32_t* down = &down_[std::size_t{m.to_leaf} * paths_.spines];
        const auto load = [&](std::uint32_t s) { return std::pair(std::max(up[s], down[s]), up[s] + down[s]); };
        std::uint32_t lane = 0;
        for (std::uint32_t s = 1; s < paths_.spines; ++s) {
            lane = load(s) < load(lane) ? s : lane;
        }
        return lane;
    }

    Parameters own_;
    std::vector<std::uint32_t> up_, down_;  ///< planned flows on each link now
    std::vector<std::uint32_t> turn_;       ///< of core switches, by leaf
};

}  // namespace

extern const PolicyRow<PathChooser> kPlanned = policy_row<PathChooser, Planned>(
    "planned", "traffic engineering: messages that start together are placed to minimise the load of the busiest link");

}  // namespace orrery::network::packet
