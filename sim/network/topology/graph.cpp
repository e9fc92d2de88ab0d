// Any graph of switches, and sites joined by wide-area links. Paths are shortest: over the fewest links in a graph, of the least
// latency between sites; a switch sends over all links that begin such a path.
// Sprayed traffic divides over them in proportion to what each can carry onward (Zhou et al., "WCMP", EuroSys 2014).
//
// What one connection reaches between sites is its window over the round trip, and with losses MSS / RTT x sqrt(3/2) /
// sqrt(loss): Mathis, Semke, Mahdavi, Ott, "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", CCR 27(3), 1997.
// With an initial window W0 a message's connections start slowly (RFC 5681): they send W0 and twice as much in each further round
// trip, up to their window W. Until then log2(1 + b / W0) round trips carry the bytes b that need b / W of them at the full window.

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/network/topology/routed.hpp"
#include "sim/network/topology/shape.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <queue>

namespace orrery::network {

namespace {

struct GraphSwitch {
    std::string name;
    std::int64_t nodes = 0;
};

struct GraphLink {
    std::string from;
    std::string to;
    double rate = 0;
    double latency = 500e-9;
    std::int64_t count = 1;
    double window = 0;  ///< bytes of a connection
    double loss = 0;    ///< of packets
};

struct GraphParameters {
    std::vector<GraphSwitch> switches;
    std::vector<GraphLink> links;
};

class GraphTopology final : public RoutedTopology {
  public:
    GraphTopology(const FabricShape& shape, const GraphParameters& own, bool by_latency, double connections, double mss,
                  double initial_window)
        : RoutedTopology(shape.link_latency),
          nics_per_node_(shape.nics_per_node),
          connections_(connections),
          mss_(mss),
          initial_window_(initial_window),
          what_(by_latency ? "sites" : "graph") {
        std::map<std::string, std::uint32_t> numbers;
        for (const GraphSwitch& one : own.switches) {
            numbers.emplace(one.name, static_cast<std::uint32_t>(names_.size()));
            nodes_before_.push_back(nodes_before_.empty() ? 0 : nodes_before_.back() + nodes_last_);
            nodes_last_ = static_cast<std::uint32_t>(one.nodes);
            names_.push_back(one.name);
        }
        std::vector<const GraphLink*> sorted;
        for (const GraphLink& link : own.links) {
            sorted.push_back(&link);
        }
        std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->rate < b->rate; });
        leaving_.resize(names_.size());
        for (const GraphLink* link : sorted) {
            const std::uint32_t a = numbers.at(link->from);
            const std::uint32_t b = numbers.at(link->to);
            for (std::int64_t i = 0; i < link->count; ++i) {
                leaving_[a].push_back(add_link({a, b, link->rate, link->latency}));
                leaving_[b].push_back(add_link({b, a, link->rate, link->latency}));
                windows_.insert(windows_.end(), 2, link->window);
                losses_.insert(losses_.end(), 2, link->loss);
            }
        }
        by_latency_ = by_latency;
        add_bundles();
        for (std::uint32_t to = 0; to < names_.size(); ++to) {
            add_distances(to);
            add_onward(to);
        }
    }

    [[nodiscard]] std::uint32_t switches() const override { return static_cast<std::uint32_t>(names_.size()); }
    [[nodiscard]] std::string switch_name(std::uint32_t number) const override { return names_[number]; }
    [[nodiscard]] std::uint32_t switch_of(std::uint32_t nic) const override {
        const std::uint32_t node = nic / nics_per_node_;
        return static_cast<std::uint32_t>(std::upper_bound(nodes_before_.begin(), nodes_before_.end(), node) -
                                          nodes_before_.begin() - 1);
    }
    [[nodiscard]] LinkSet next_links(std::uint32_t at, std::uint32_t to, std::uint32_t) const override {
        const double* distance = &distances_[std::size_t{to} * names_.size()];
        LinkSet out;
        for (const std::uint32_t link : leaving_[at]) {
            if (distance[links_[link].to] + cost(link) <= distance[at] * (1 + 1e-12)) {
                out.add(link);
            }
        }
        return out;
    }
    // What a link can carry of what leads on behind it, which it shares with the links beside it.
    [[nodiscard]] double weight(std::uint32_t link, std::uint32_t to) const override {
        const double onward = onward_[std::size_t{to} * names_.size() + links_[link].to];
        return links_[link].rate * std::min(1.0, onward / bundles_[link]);
    }
    [[nodiscard]] bool takes_turns() const override { return true; }
    [[nodiscard]] double connection_limit(std::uint32_t from, std::uint32_t to) const override {
        const Connection one = connection(from, to);
        double limit = one.window / one.round_trip;
        if (one.arrives < 1) {
            limit = std::min(limit, mss_ / one.round_trip * std::sqrt(1.5 / (1 - one.arrives)));
        }
        return std::isfinite(limit) ? connections_ * limit : 0;
    }
    [[nodiscard]] double slow_start(std::uint32_t from, std::uint32_t to, double bytes) const override {
        const Connection one = initial_window_ > 0 ? connection(from, to) : Connection();
        // No further than what its share of the link carries in a round trip.
        const double window = std::min(one.window, one.rate * one.round_trip / connections_);
        if (!std::isfinite(window) || window <= initial_window_) {
            return 0;
        }
        const double slow = std::min(bytes / connections_, window - initial_window_);
        return one.round_trip * (log2_pinned(1 + slow / initial_window_) - slow / window);
    }
    [[nodiscard]] std::string summary() const override {
        return what_ + ": " + std::to_string(names_.size()) + (what_ == "graph" ? " switches, " : ", ") +
               std::to_string(links_.size() / 2) + " links between them";
    }

  private:
    struct Connection {
        double window = std::numeric_limits<double>::infinity();  // bytes
        double arrives = 1;                                       // of its packets
        double rate = std::numeric_limits<double>::infinity();    // B/s of the links
        double round_trip = 0;                                    // s
    };
    [[nodiscard]] Connection connection(std::uint32_t from, std::uint32_t to) const {
        Connection out;
        out.round_trip = 2 * 2 * host_latency();
        for (std::uint32_t at = from; at != to;) {
            const std::uint32_t link = next_link(at, to, 0);
            out.window = windows_[link] > 0 ? std::min(out.window, windows_[link]) : out.window;
            out.arrives *= 1 - losses_[link];
            out.rate = std::min(out.rate, links_[link].rate);
            out.round_trip += 2 * links_[link].latency;
            at = links_[link].to;
        }
        return out;
    }
    [[nodiscard]] double cost(std::uint32_t link) const { return by_latency_ ? links_[link].latency : 1; }

    // Dijkstra's algorithm towards one switch; links go both ways, so backwards is the same.
    void add_distances(std::uint32_t to) {
        const std::size_t first = distances_.size();
        distances_.resize(first + names_.size(), std::numeric_limits<double>::infinity());
        double* distance = &distances_[first];
        std::priority_queue<std::pair<double, std::uint32_t>, std::vector<std::pair<double, std::uint32_t>>,
                            std::greater<>>
            open;
        distance[to] = 0;
        open.emplace(0, to);
        while (!open.empty()) {
            const auto [far, at] = open.top();
            open.pop();
            if (far > distance[at]) {
                continue;
            }
            for (const std::uint32_t link : leaving_[at]) {
                if (const double next = far + cost(link); next < distance[links_[link].to]) {
                    distance[links_[link].to] = next;
                    open.emplace(next, links_[link].to);
                }
            }
        }
    }

    // Links side by side lead on to the same switch.
    void add_bundles() {
        std::map<std::pair<std::uint32_t, double>, double> rates;
        bundles_.resize(links_.size());
        for (const std::vector<std::uint32_t>& leaving : leaving_) {
            rates.clear();
            for (const std::uint32_t link : leaving) {
                rates[{links_[link].to, cost(link)}] += links_[link].rate;
            }
            for (const std::uint32_t link : leaving) {
                bundles_[link] = rates[{links_[link].to, cost(link)}];
            }
        }
    }

    // B/s that the shortest paths from each switch can carry to one of them, as if each had its links to itself.
    void add_onward(std::uint32_t to) {
        const std::size_t first = onward_.size();
        const std::size_t count = names_.size();
        onward_.resize(first + count, std::numeric_limits<double>::infinity());
        std::vector<std::uint32_t> nearest_first(count);
        std::iota(nearest_first.begin(), nearest_first.end(), 0U);
        std::sort(nearest_first.begin(), nearest_first.end(), [&](std::uint32_t a, std::uint32_t b) {
            return std::pair(distances_[first + a], a) < std::pair(distances_[first + b], b);
        });
        for (const std::uint32_t at : nearest_first) {
            if (at == to) {
                continue;
            }
            const LinkSet next = next_links(at, to, 0);
            ORRERY_ASSERT(next.size() > 0 && std::isfinite(distances_[first + at]));
            double sum = 0;
            for (std::uint32_t i = 0; i < next.size(); ++i) {
                sum += weight(next[i], to);
            }
            onward_[first + at] = sum;
        }
    }

    std::uint32_t nics_per_node_;
    double connections_;
    double mss_;
    double initial_window_;  ///< bytes; 0: connections start at their full window
    std::string what_;
    bool by_latency_ = false;
    std::uint32_t nodes_last_ = 0;
    std::vector<std::string> names_;
    std::vector<std::uint32_t> nodes_before_;          ///< by switch: nodes on those before it
    std::vector<std::vector<std::uint32_t>> leaving_;  ///< by switch: its links out
    std::vector<double> distances_;                    ///< by destination, then switch
    std::vector<double> onward_;                       ///< by destination, then switch: B/s that lead on from it
    std::vector<double> bundles_;                      ///< by link: B/s of it and of those side by side with it
    std::vector<double> windows_;                      ///< by link
    std::vector<double> losses_;
};

// Unknown names, switches twice, switches that no path joins, nodes without a place: one line each.
void check_graph(const GraphParameters& own, std::uint32_t nodes, const std::string& what,
                 std::vector<std::string>& problems) {
    constexpr std::size_t kMostSwitches = 2048;
    std::map<std::string, std::uint32_t> numbers;
    std::vector<std::string> names;
    std::int64_t places = 0;
    for (const GraphSwitch& one : own.switches) {
        if (!numbers.emplace(one.name, static_cast<std::uint32_t>(numbers.size())).second) {
            problems.push_back(problem_at("fabric." + what + "[" + std::to_string(names.size()) + "]",
                                          what + " '" + one.name + "' is there twice"));
        }
        names.push_back(one.name);
        places += one.nodes;
    }
    if (own.switches.empty() || own.switches.size() > kMostSwitches) {
        problems.push_back(problem_at("fabric." + what, "a fabric has 1 to " + std::to_string(kMostSwitches) + " of '" +
                                                            what + "', not " + std::to_string(own.switches.size())));
        return;
    }
    if (places != nodes) {
        problems.push_back(problem_at("fabric." + what, "the entries of '" + what + "' hold " + std::to_string(places) +
                                                            " nodes, not " + std::to_string(nodes)));
    }
    std::vector<std::uint32_t> part(numbers.size());
    for (std::uint32_t i = 0; i < part.size(); ++i) {
        part[i] = i;
    }
    const auto root = [&](std::uint32_t i) {
        while (part[i] != i) {
            i = part[i];
        }
        return i;
    };
    for (std::size_t i = 0; i < own.links.size(); ++i) {
        const GraphLink& link = own.links[i];
        const std::string here =
            std::string(what == "sites" ? "fabric.wan[" : "fabric.links[") + std::to_string(i) + "]";
        for (const std::string& end : {link.from, link.to}) {
            if (!numbers.contains(end)) {
                const std::string guess = nearest_name(end, names);
                problems.push_back(problem_at(here, "a link names '" + end + "', which is not among '" + what + "'" +
                                                        (guess.empty() ? "" : " (did you mean '" + guess + "'?)")));
            }
        }
        if (link.from == link.to) {
            problems.push_back(problem_at(here, "a link joins '" + link.from + "' with itself"));
        }
        if (numbers.contains(link.from) && numbers.contains(link.to)) {
            part[root(numbers[link.from])] = root(numbers[link.to]);
        }
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (root(numbers[names[i]]) != root(0)) {
            problems.push_back(problem_at("fabric." + what + "[" + std::to_string(i) + "]",
                                          "no path from '" + names[0] + "' to '" + names[i] + "'"));
        }
    }
}

template <class T>
void describe_ends(Fields& fields, T& link) {
    fields.text({"from", "name of one end", true}, link.from);
    fields.text({"to", "name of the other end", true}, link.to);
    fields.quantity({"link", "rate of the link per direction", true, 1, 1e14}, Dimension::rate, link.rate);
}

struct SwitchGraphParameters : GraphParameters {
    void describe(Fields& fields) {
        fields.items({"switches", "the switches; nodes hang on them in this order", true}, switches,
                     [](Fields& inner, GraphSwitch& one) {
                         inner.text({"name", "name of the switch", true}, one.name);
                         inner.integer({"nodes", "nodes that hang on it", false, 0, 1'000'000}, one.nodes);
                     });
        fields.items({"links", "links between switches, both directions"}, links, [](Fields& inner, GraphLink& link) {
            describe_ends(inner, link);
            inner.quantity({"latency", "latency of the link, including the switch", false, 0, 1}, Dimension::time,
                           link.latency);
            inner.integer({"count", "number of equal parallel links", false, 1, 65536}, link.count);
        });
    }
};

struct SiteParameters : GraphParameters {
    double connections = 1;
    double segment = 1460;
    double initial_window = 0;
    void describe(Fields& fields) {
        fields.items({"sites", "the sites; nodes are in them in this order, on one switch each", true}, switches,
                     [](Fields& inner, GraphSwitch& one) {
                         inner.text({"name", "name of the site", true}, one.name);
                         inner.integer({"nodes", "nodes in it", true, 0, 1'000'000}, one.nodes);
                     });
        fields.items({"wan", "links between sites, both directions"}, links, [](Fields& inner, GraphLink& link) {
            describe_ends(inner, link);
            inner.quantity({"latency", "one-way latency of the link", true, 1e-9, 1}, Dimension::time, link.latency);
            inner.quantity({"window", "bytes of one connection in flight (0: no limit)", false, 0, 1e15},
                           Dimension::bytes, link.window);
            inner.quantity({"loss", "share of packets that the link loses", false, 0, 0.5}, Dimension::fraction,
                           link.loss);
        });
        fields.number({"connections", "connections that a message between sites is spread over", false, 1, 65536},
                      connections);
        fields.quantity({"segment", "bytes of a packet of a connection, for what losses cost", false, 64, 65536},
                        Dimension::bytes, segment);
        fields.quantity({"initial_window",
                         "initial congestion window of a message's connections; it doubles every round trip up to the "
                         "window (slow start); 0 B: no slow start",
                         false, 0, 1024.0 * 1024 * 1024},
                        Dimension::bytes, initial_window);
    }
};

class GraphPlan final : public TopologyPlan {
  public:
    using Parameters = SwitchGraphParameters;
    explicit GraphPlan(const Parameters& own) : own_(own) {}
    void complete(FabricShape& shape, std::vector<std::string>& problems) const override {
        check_graph(own_, shape.nodes, "switches", problems);
        shape.nodes_per_leaf = 1;
        shape.topology = [own = own_](const FabricShape& s) {
            return std::make_shared<GraphTopology>(s, own, false, 1, 1460, 0);
        };
    }

  private:
    Parameters own_;
};

class SitesPlan final : public TopologyPlan {
  public:
    using Parameters = SiteParameters;
    explicit SitesPlan(const Parameters& own) : own_(own) {}
    [[nodiscard]] bool limits_connections() const override {
        return std::any_of(own_.links.begin(), own_.links.end(),
                           [](const GraphLink& link) { return link.window > 0 || link.loss > 0; });
    }
    void complete(FabricShape& shape, std::vector<std::string>& problems) const override {
        check_graph(own_, shape.nodes, "sites", problems);
        const bool windows =
            std::any_of(own_.links.begin(), own_.links.end(), [](const auto& l) { return l.window > 0; });
        if (own_.initial_window > 0 && !windows) {
            problems.emplace_back("initial_window needs a window of some link, up to which it grows");
        }
        shape.nodes_per_leaf = 1;
        shape.topology = [own = own_](const FabricShape& s) {
            return std::make_shared<GraphTopology>(s, own, true, own.connections, own.segment, own.initial_window);
        };
    }

  private:
    Parameters own_;
};

}  // namespace

extern const PolicyRow<TopologyPlan> kGraph =
    policy_row<TopologyPlan, GraphPlan>("graph", "any switches and links, by shortest paths over all equal ones");
extern const PolicyRow<TopologyPlan> kSites =
    policy_row<TopologyPlan, SitesPlan>("sites", "sites joined by wide-area links, with what one connection reaches");

}  // namespace orrery::network
