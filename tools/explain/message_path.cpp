#include "tools/driver/kinds/messages.hpp"
#include "tools/explain/paths.hpp"
#include "workloads/collective/choose.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <span>

namespace orrery::explain {

namespace {

constexpr const char* kLatency = "latency";
constexpr double kRounding = 1e-9;

// The links of a message, or of the tree of an all-reduce inside the switches.
struct Links {
    std::vector<ResourceId> links;
    std::vector<double> shares;  ///< of the message's bytes, by link
    double latency = 0;
};

Links links_of(const Route& route) {
    Links out{{route.resources().begin(), route.resources().end()}, {}, route.latency};
    for (std::size_t i = 0; i < out.links.size(); ++i) {
        out.shares.push_back(route.share(i));
    }
    return out;
}

Links links_of(const Fabric& fabric, const Schedule& schedule, const Message& message, PathChoice paths) {
    if (message.group != Message::kNoGroup) {
        std::vector<GpuId> members;
        for (const std::uint32_t rank : schedule.groups[message.group]) {
            members.emplace_back(rank);
        }
        TreeLinks tree = fabric.tree(members, paths, message.group);
        const std::size_t count = tree.links.size();
        return {std::move(tree.links), std::vector<double>(count, 1), tree.latency};
    }
    // The hash of run_messages, so that fluid runs have the path that was used.
    return links_of(fabric.route(GpuId(message.from), GpuId(message.to), paths,
                                 (static_cast<std::uint64_t>(message.from) << 32) | message.to));
}

// The link that takes longest for its share.
ResourceId narrowest(const Fabric& fabric, const Links& route) {
    ORRERY_ASSERT(!route.links.empty() && route.shares.size() == route.links.size());
    ResourceId least = route.links[0];
    double most = 0;
    for (std::size_t i = 0; i < route.links.size(); ++i) {
        const double rate = fabric.capacity(route.links[i]);
        if (rate > 0 && route.shares[i] / rate > most) {
            most = route.shares[i] / rate;
            least = route.links[i];
        }
    }
    return least;
}

class MessagePath {
  public:
    MessagePath(const Scenario& scenario, const Fabric& fabric, const MessageRecord& record)
        : fabric_(fabric), record_(record), options_(message_options(scenario)) {
        ORRERY_ASSERT(record.starts.size() == record.completions.size());
        ORRERY_ASSERT(record.schedule.messages.size() == record.completions.size());
        options_.run.link_events.clear();
        // What a message takes alone is the same there, and SimGrid is one engine a process.
        if (options_.run.fidelity == Fidelity::simgrid) {
            options_.run.fidelity = Fidelity::fluid;
        }
        // Packets choose their links themselves; what they are spread over is known.
        paths_ = options_.run.fidelity == Fidelity::packet ? PathChoice::spray : options_.paths;
    }

    // A collective takes as long as the chain of messages to its last one; of traffic, the headline is the slowest flow.
    void book(Explanation& out, bool chain, const std::vector<PortReport>& ports) {
        const std::uint32_t last = largest([&](std::uint32_t id) {
            const double start = record_.starts[id] + record_.schedule.messages[id].delay;
            return record_.completions[id] - (chain ? 0 : start);
        });
        const std::vector<std::uint32_t> released_by =
            chain ? predecessors() : std::vector<std::uint32_t>(record_.completions.size(), kNone);
        std::map<std::pair<std::string, std::string>, double> sums;
        for (std::uint32_t at = last; at != kNone; at = released_by[at]) {
            const Message& message = record_.schedule.messages[at];
            ORRERY_ASSERT(released_by[at] == kNone || record_.completions[released_by[at]] <= record_.starts[at]);
            const LastMessage parts = split(at);
            const std::string name = message.group != Message::kNoGroup ? "in-network reduction"
                                     : fabric_.domain_of(GpuId(message.from)) == fabric_.domain_of(GpuId(message.to))
                                         ? "messages inside a node"
                                         : "messages between nodes";
            const Links route = path_of(message);
            sums[{name, kLatency}] += parts.propagation_s;
            sums[{name, kind_of_resource(fabric_.resource_name(narrowest(fabric_, route)))}] += parts.serialisation_s;
            sums[{name, options_.run.fidelity == Fidelity::packet ? "queues and congestion control"
                                                                  : "links shared with others"}] += parts.contention_s;
            if (chain && message.delay > 0) {
                sums[{"given start times", "the traffic"}] += message.delay;
            }
        }
        for (const auto& [key, seconds] : sums) {
            if (seconds > 0) {
                out.critical_path.push_back({key.first, key.second, seconds});
            }
        }
        std::stable_sort(out.critical_path.begin(), out.critical_path.end(),
                         [](const BlameRow& a, const BlameRow& b) { return a.seconds > b.seconds; });
        out.last = split(last);
        add_links(last, *out.last);
        out.link_loads = loads(ports);
        out.link_use = busiest(out.link_loads);
    }

  private:
    static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

    template <typename Value>
    [[nodiscard]] std::uint32_t largest(Value value) const {
        std::uint32_t out = 0;
        for (std::uint32_t id = 1; id < record_.completions.size(); ++id) {
            out = value(id) > value(out) ? id : out;
        }
        return out;
    }

    [[nodiscard]] Links path_of(const Message& message) const {
        return links_of(fabric_, record_.schedule, message, paths_);
    }

    // Of the messages that each one waited for, the last to arrive.
    [[nodiscard]] std::vector<std::uint32_t> predecessors() const {
        const Schedule& schedule = record_.schedule;
        std::vector<std::uint32_t> out(schedule.messages.size(), kNone);
        for (std::uint32_t id = 0; id < schedule.messages.size(); ++id) {
            const Message& message = schedule.messages[id];
            for (std::uint32_t k = 0; k < message.release_count; ++k) {
                const std::uint32_t next = schedule.releases[message.first_release + k];
                ORRERY_ASSERT(next < out.size());
                std::uint32_t& before = out[next];
                if (record_.completions[id] > record_.starts[next]) {
                    continue;  // it did not wait for this one: as many as it waits for had come
                }
                if (before == kNone || record_.completions[id] > record_.completions[before]) {
                    before = id;
                }
            }
        }
        return out;
    }

    // Messages over paths of equal length and rate take equally long alone.
    double alone(const Message& message, const Links& route) {
        std::vector<double> key = {message.bytes, route.latency, message.group != Message::kNoGroup ? 1.0 : 0.0};
        for (const ResourceId link : route.links) {
            key.push_back(fabric_.capacity(link));
        }
        const auto [entry, fresh] = alone_.try_emplace(std::move(key), 0);
        if (fresh) {
            Schedule one;
            one.messages.push_back(message);
            one.groups = record_.schedule.groups;
            one.messages[0].delay = 0;
            one.messages[0].waits_for = one.messages[0].first_release = one.messages[0].release_count = 0;
            entry->second = run_messages(fabric_, one, options_).seconds;
        }
        return entry->second;
    }

    [[nodiscard]] LastMessage split(std::uint32_t id) {
        const Message& message = record_.schedule.messages[id];
        const Links route = path_of(message);
        LastMessage out;
        out.from = message.from;
        out.to = message.to;
        out.bytes = message.bytes;
        out.start_s = record_.starts[id] + message.delay;
        out.seconds = record_.completions[id] - out.start_s;
        ORRERY_ASSERT(out.seconds >= -kRounding);
        const double alone_s = std::min(out.seconds, alone(message, route));
        out.propagation_s = std::min(alone_s, route.latency);
        out.serialisation_s = alone_s - out.propagation_s;
        out.contention_s = out.seconds - alone_s;
        return out;
    }

    // What every message put on the links of this one while it was under way, at the message's mean rate.
    void add_links(std::uint32_t id, LastMessage& out) const {
        const Links own = path_of(record_.schedule.messages[id]);
        const double from = out.start_s;
        const double to = from + out.seconds;
        std::map<std::uint32_t, LinkShare> shares;
        for (const ResourceId link : own.links) {
            shares[link.value()] = {fabric_.resource_name(link), fabric_.capacity(link), 0, 0, 0};
        }
        for (std::uint32_t i = 0; i < record_.completions.size(); ++i) {
            const Message& message = record_.schedule.messages[i];
            const double start = record_.starts[i] + message.delay;
            const double overlap = std::min(record_.completions[i], to) - std::max(start, from);
            if (overlap <= 0) {
                continue;
            }
            const double share = overlap / (record_.completions[i] - start);
            ORRERY_ASSERT(share <= 1 + kRounding);  // an overlap with itself
            const Links path = path_of(message);
            for (std::size_t k = 0; k < path.links.size(); ++k) {
                const auto found = shares.find(path.links[k].value());
                if (found != shares.end() && found->second.capacity > 0) {
                    const double use = message.bytes * path.shares[k] * share / (found->second.capacity * out.seconds);
                    found->second.use += use;
                    found->second.own += i == id ? use : 0;
                    ++found->second.flows;
                }
            }
        }
        for (const ResourceId link : own.links) {
            // Messages do not go at their mean rates: the estimate may come out above what the link carries.
            LinkShare& share = shares[link.value()];
            share.use = std::min(1.0, share.use);
            share.own = std::min(share.own, share.use);
            out.links.push_back(share);
            if (out.links.back().use > out.links[out.bottleneck].use) {
                out.bottleneck = out.links.size() - 1;
            }
        }
    }

    // By resource: bytes over what it could carry in the whole run. Packets counted theirs at the ports, which are the links
    // from the first NIC on; inside a node messages say it.
    [[nodiscard]] std::vector<double> loads(const std::vector<PortReport>& ports) const {
        const auto& ends = record_.completions;
        const double seconds = *std::max_element(ends.begin(), ends.end());
        std::vector<double> out(fabric_.resource_count(), 0);
        for (const Message& message : record_.schedule.messages) {
            const Links path = path_of(message);
            for (std::size_t i = 0; i < path.links.size(); ++i) {
                if (const double rate = fabric_.capacity(path.links[i]); rate > 0 && seconds > 0) {
                    out[path.links[i].value()] += message.bytes * path.shares[i] / (rate * seconds);
                }
            }
        }
        if (!ports.empty()) {
            const std::uint32_t nics = fabric_.shape().nics();
            const std::uint32_t first = fabric_.first_switch_link();
            // Bundles of links that sprayed flows see are no ports.
            std::fill(out.begin() + first, out.end(), 0);
            for (std::uint32_t port = 0; port < ports.size(); ++port) {
                const std::uint32_t resource = port < nics       ? fabric_.nic_out(port).value()
                                               : port < 2 * nics ? fabric_.nic_in(port - nics).value()
                                                                 : first + link_of_port(port - 2 * nics);
                ORRERY_ASSERT(resource < out.size());
                out[resource] = ports[port].utilisation;
            }
        }
        for (double& load : out) {
            load = std::min(1.0, load);
        }
        return out;
    }

    // Ports of switches come in the order of links; a tree has the bundles of its leaves between its links at the leaves and
    // those at the cores.
    [[nodiscard]] std::uint32_t link_of_port(std::uint32_t port) const {
        const std::uint32_t at_leaves = 2 * fabric_.leaves() * fabric_.shape().spines;
        return fabric_.as_tree() == nullptr || port < at_leaves ? port : port + 2 * fabric_.leaves();
    }

    // The busiest of each kind.
    [[nodiscard]] std::map<std::string, double> busiest(const std::vector<double>& loads) const {
        std::map<std::string, double> out;
        for (std::uint32_t i = 0; i < loads.size(); ++i) {
            if (loads[i] > 0) {
                double& most = out[kind_of_resource(fabric_.resource_name(ResourceId(i)))];
                most = std::max(most, loads[i]);
            }
        }
        return out;
    }

    const Fabric& fabric_;
    const MessageRecord& record_;
    MessageRunOptions options_;
    PathChoice paths_;
    std::map<std::vector<double>, double> alone_;
};

// All steps of a ring that was run without keeping its messages: the slowest pair of neighbours sets the pace.
void book_ring(const Scenario& scenario, const Fabric& fabric, double seconds, Explanation& out) {
    const CollectiveSpec& spec = scenario.as<CollectiveKind>().collective;
    const auto ranks = spec.ranks > 0 ? static_cast<std::uint32_t>(spec.ranks) : fabric.gpus();
    if (ranks < 2 || seconds <= 0) {
        return;
    }
    const double steps = (spec.op == CollectiveOp::all_reduce ? 2.0 : 1.0) * (ranks - 1);
    BlameRow slowest;
    double latency = 0;
    for (std::uint32_t i = 0; i < ranks; ++i) {
        const Route route = fabric.route(GpuId(i), GpuId((i + 1) % ranks), scenario.network.path_choice(),
                                         (static_cast<std::uint64_t>(i) << 32) | (i + 1));
        const ResourceId link = narrowest(fabric, links_of(route));
        const bool slow = spec.slow_rank == static_cast<std::int64_t>(i);
        const double transfer = spec.bytes / ranks / (fabric.capacity(link) * (slow ? spec.slow_factor : 1));
        if (route.latency + transfer > latency + slowest.seconds) {
            latency = route.latency;
            slowest = {"steps of the slowest pair of neighbours",
                       slow ? "the slow rank" : kind_of_resource(fabric.resource_name(link)), transfer};
        }
    }
    ORRERY_ASSERT(slowest.seconds >= 0 && latency >= 0);
    slowest.seconds *= steps;
    out.critical_path = {slowest, {slowest.operation, kLatency, latency * steps}};
    if (const double rest = seconds - slowest.seconds - latency * steps; rest > 1e-9 * seconds) {
        out.critical_path.push_back({"the ring", "links shared with others", rest});
    }
    std::stable_sort(out.critical_path.begin(), out.critical_path.end(),
                     [](const BlameRow& a, const BlameRow& b) { return a.seconds > b.seconds; });
}

}  // namespace

void explain_collective(const Scenario& scenario, const RunOutput& base, Explanation& out) {
    const auto& own = scenario.as<CollectiveKind>();
    out.path_meaning = "the messages that the last one waited for, one after another, by what they spent their time on";
    const Fabric fabric = fabric_of(scenario);
    if (base.messages && !base.messages->completions.empty()) {
        MessagePath(scenario, fabric, *base.messages).book(out, true, base.packets.ports);
    } else if (const CollectiveSpec spec = resolved(
                   own.collective, fabric, Placement(fabric), scenario.network.path_choice(),
                   own.collective.ranks > 0 ? static_cast<std::uint32_t>(own.collective.ranks) : fabric.gpus());
               spec.algorithm == &algorithm("ring") && scenario.network.fidelity != Fidelity::simgrid) {
        book_ring(scenario, fabric, out.seconds, out);
    }
}

void explain_traffic(const Scenario& scenario, const RunOutput& base, Explanation& out) {
    if (base.messages && !base.messages->completions.empty()) {
        const Fabric fabric = fabric_of(scenario);
        MessagePath(scenario, fabric, *base.messages).book(out, false, base.packets.ports);
        if (out.last) {
            out.last->slowest = true;
        }
    }
}

void explain_replay(const RunOutput& base, Explanation& out) {
    out.path_meaning = "what the end of the replay waited for, by kind of operation and stream";
    std::map<std::pair<std::string, std::string>, double> sums;
    for (const ReplayBlame& blame : base.replay_path) {
        sums[{blame.kind, blame.lane}] += blame.seconds;
        if (blame.kind != "lag" && out.longest.size() < 10) {
            out.longest.push_back({blame.name, blame.lane, blame.seconds});
        }
    }
    for (const auto& [key, seconds] : sums) {
        out.critical_path.push_back({key.first, key.second, seconds});
    }
    std::stable_sort(out.critical_path.begin(), out.critical_path.end(),
                     [](const BlameRow& a, const BlameRow& b) { return a.seconds > b.seconds; });
}

}  // namespace orrery::explain
