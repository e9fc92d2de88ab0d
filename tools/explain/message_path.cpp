#include "tools/explain/paths.hpp"
#include "workloads/collective/choose.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <span>

namespace orrery::inline explanation {

namespace {

constexpr const char* kLatency = "latency";

// The links of a message, or of the tree of an all-reduce inside the switches.
struct Links {
    std::vector<ResourceId> links;
    double latency = 0;
};

Links links_of(const Fabric& fabric, const Schedule& schedule, const Message& message, PathChoice paths) {
    if (message.group != Message::kNoGroup) {
        std::vector<GpuId> members;
        for (const std::uint32_t rank : schedule.groups[message.group]) {
            members.emplace_back(rank);
        }
        TreeLinks tree = fabric.tree(members, paths, message.group);
        return {std::move(tree.links), tree.latency};
    }
    // The hash of run_messages, so that fluid runs have the path that was used.
    const Route route = fabric.route(GpuId(message.from), GpuId(message.to), paths,
                                     (static_cast<std::uint64_t>(message.from) << 32) | message.to);
    return {{route.resources().begin(), route.resources().end()}, route.latency};
}

ResourceId narrowest(const Fabric& fabric, std::span<const ResourceId> links) {
    ResourceId least = links[0];
    for (const ResourceId link : links) {
        if (fabric.capacity(link) > 0 && fabric.capacity(link) < fabric.capacity(least)) {
            least = link;
        }
    }
    return least;
}

class MessagePath {
  public:
    MessagePath(const Scenario& scenario, const Fabric& fabric, const MessageRecord& record)
        : fabric_(fabric), record_(record), options_(message_options(scenario)) {
        options_.run.link_events.clear();
        // What a message takes alone is the same there, and SimGrid is one engine a process.
        if (options_.run.fidelity == Fidelity::simgrid) {
            options_.run.fidelity = Fidelity::fluid;
        }
        // Packets choose their links themselves; what they are spread over is known.
        paths_ = options_.run.fidelity == Fidelity::packet ? PathChoice::spray : options_.paths;
    }

    // A collective takes as long as the chain of messages to its last one; of traffic, the headline is the slowest flow.
    void book(Explanation& out, bool chain) {
        const std::uint32_t last = largest([&](std::uint32_t id) {
            const double start = record_.starts[id] + record_.schedule.messages[id].delay;
            return record_.completions[id] - (chain ? 0 : start);
        });
        const std::vector<std::uint32_t> released_by =
            chain ? predecessors() : std::vector<std::uint32_t>(record_.completions.size(), kNone);
        std::map<std::pair<std::string, std::string>, double> sums;
        for (std::uint32_t at = last; at != kNone; at = released_by[at]) {
            const Message& message = record_.schedule.messages[at];
            const LastMessage parts = split(at);
            const std::string name = message.group != Message::kNoGroup ? "in-network reduction"
                                     : fabric_.domain_of(GpuId(message.from)) == fabric_.domain_of(GpuId(message.to))
                                         ? "messages inside a node"
                                         : "messages between nodes";
            const Links route = path_of(message);
            sums[{name, kLatency}] += parts.propagation_s;
            sums[{name, kind_of_resource(fabric_.resource_name(narrowest(fabric_, route.links)))}] +=
                parts.serialisation_s;
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
        add_use(out.link_use);
        add_loads(out.link_loads);
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
            const Links path = path_of(message);
            for (const ResourceId link : path.links) {
                const auto found = shares.find(link.value());
                if (found != shares.end() && found->second.capacity > 0) {
                    const double use = message.bytes * share / (found->second.capacity * out.seconds);
                    found->second.use += use;
                    found->second.own += i == id ? use : 0;
                    ++found->second.flows;
                }
            }
        }
        for (const ResourceId link : own.links) {
            out.links.push_back(shares[link.value()]);
            if (out.links.back().use > out.links[out.bottleneck].use) {
                out.bottleneck = out.links.size() - 1;
            }
        }
    }

    // Bytes on each link over what it could carry in the whole run: the busiest of each kind.
    void add_use(std::map<std::string, double>& use) const {
        const auto& ends = record_.completions;
        const double seconds = *std::max_element(ends.begin(), ends.end());
        std::vector<double> bytes(fabric_.resource_count());
        for (const Message& message : record_.schedule.messages) {
            const Links path = path_of(message);
            for (const ResourceId link : path.links) {
                bytes[link.value()] += message.bytes;
            }
        }
        for (std::uint32_t i = 0; i < bytes.size(); ++i) {
            if (bytes[i] > 0 && seconds > 0 && fabric_.capacity(ResourceId(i)) > 0) {
                double& most = use[kind_of_resource(fabric_.resource_name(ResourceId(i)))];
                most = std::max(most, bytes[i] / (fabric_.capacity(ResourceId(i)) * seconds));
            }
        }
    }

    // By resource, for pictures; a spread message puts on each link its share.
    void add_loads(std::vector<double>& loads) const {
        const auto& ends = record_.completions;
        const double seconds = *std::max_element(ends.begin(), ends.end());
        loads.assign(fabric_.resource_count(), 0);
        for (const Message& message : record_.schedule.messages) {
            if (message.group != Message::kNoGroup) {
                continue;
            }
            const Route route = fabric_.route(GpuId(message.from), GpuId(message.to), paths_,
                                              (static_cast<std::uint64_t>(message.from) << 32U) | message.to);
            const std::span<const ResourceId> links = route.resources();
            for (std::size_t i = 0; i < links.size() && seconds > 0; ++i) {
                loads[links[i].value()] += message.bytes * route.share(i) / (fabric_.capacity(links[i]) * seconds);
            }
        }
    }

    const Fabric& fabric_;
    const MessageRecord& record_;
    MessageRunOptions options_;
    PathChoice paths_;
    std::map<std::vector<double>, double> alone_;
};

// All steps of a ring that was run without keeping its messages: the slowest pair of neighbours sets the pace.
void book_ring(const Scenario& scenario, const Fabric& fabric, double seconds, Explanation& out) {
    const CollectiveSpec& spec = scenario.collective;
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
        const ResourceId link = narrowest(fabric, route.resources());
        const bool slow = spec.slow_rank == static_cast<std::int64_t>(i);
        const double transfer = spec.bytes / ranks / (fabric.capacity(link) * (slow ? spec.slow_factor : 1));
        if (route.latency + transfer > latency + slowest.seconds) {
            latency = route.latency;
            slowest = {"steps of the slowest pair of neighbours",
                       slow ? "the slow rank" : kind_of_resource(fabric.resource_name(link)), transfer};
        }
    }
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
    out.path_meaning = "the messages that the last one waited for, one after another, by what they spent their time on";
    const Fabric fabric = fabric_of(scenario);
    if (base.messages && !base.messages->completions.empty()) {
        MessagePath(scenario, fabric, *base.messages).book(out, true);
    } else if (const CollectiveSpec spec =
                   resolved(scenario.collective, fabric, Placement(fabric), scenario.network.path_choice(),
                            scenario.collective.ranks > 0 ? static_cast<std::uint32_t>(scenario.collective.ranks)
                                                          : fabric.gpus());
               spec.algorithm == &algorithm("ring") && scenario.network.fidelity != Fidelity::simgrid) {
        book_ring(scenario, fabric, out.seconds, out);
    }
}

void explain_traffic(const Scenario& scenario, const RunOutput& base, Explanation& out) {
    if (base.messages && !base.messages->completions.empty()) {
        const Fabric fabric = fabric_of(scenario);
        MessagePath(scenario, fabric, *base.messages).book(out, false);
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

}  // namespace orrery::inline explanation
