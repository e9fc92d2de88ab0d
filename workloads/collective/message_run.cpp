#include "workloads/collective/message_run.hpp"

#include "sim/network/simgrid_job.hpp"
#include "sim/network/topology/routed.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

namespace orrery::inline collective {

namespace {

constexpr std::uint64_t kProgressInterval = 1U << 18;

// What a message asks of links and, between nodes, of a back end that routes flows itself. One object serves all messages of
// a run: millions of them start, each on a route of its own.
struct Path {
    std::vector<Demand> demands;
    RoutedFlow flow;
    bool crosses = false;  ///< between nodes

    void take(const Fabric& fabric, GpuId from, GpuId to, const Route& route) {
        demands.clear();
        const std::span<const ResourceId> links = route.resources();
        for (std::size_t i = 0; i < links.size(); ++i) {
            demands.push_back(Demand{links[i], route.share(i)});
        }
        crosses = fabric.domain_of(from) != fabric.domain_of(to);
        flow.from = from;
        flow.to = to;
        flow.rate_limit = route.rate_limit;
    }
    [[nodiscard]] std::span<const RoutedFlow> flows() const { return {&flow, crosses ? 1U : 0U}; }
};

// B/s that one connection reaches.
double bound_of(const Route& route) {
    return route.rate_limit > 0 ? route.rate_limit : ResourceModel::kUnbounded;
}

// Latency before the sharing of a message begins.
double latency_of(const ResourceModel& resources, const Route& route, bool crosses) {
    return resources.routes_flows() && crosses ? 0 : route.latency;
}

// What the slow start of its connections adds.
double slow_start_of(const Fabric& fabric, GpuId from, GpuId to, double bytes) {
    const auto* routed = dynamic_cast<const RoutedTopology*>(&fabric.topology());
    if (routed == nullptr || fabric.domain_of(from) == fabric.domain_of(to)) {
        return 0;
    }
    const Fabric::Crossing crossing = fabric.crossing(from, to);
    return routed->slow_start(routed->switch_of(crossing.out), routed->switch_of(crossing.in), bytes);
}

// What hashed paths go by.
std::uint64_t hash_of(GpuId from, std::uint32_t to) {
    return (static_cast<std::uint64_t>(from.value()) << 32) | to;
}

// Runs a stored schedule: each message waits for its count of arrivals, then for its path's latency, then shares.
class ScheduleRun final : public MessageRun, public TaskSource {
  public:
    ScheduleRun(Simulation& simulation, const Placement& placement, const Schedule& schedule,
                const MessageRunOptions& options, SimTime start)
        : fabric_(*simulation.fabric()),
          placement_(placement),
          schedule_(schedule),
          options_(options),
          resources_(simulation.resources()),
          dispatcher_(simulation.add(static_cast<TaskSource&>(*this), start)),
          classes_(schedule.messages.size()) {
        waiting_.reserve(schedule.messages.size());
        double crossing = 0;
        for (const Message& message : schedule.messages) {
            waiting_.push_back(message.waits_for);
            if (options.progress && fabric_.domain_of(gpu(message.from)) != fabric_.domain_of(gpu(message.to))) {
                crossing += message.bytes * copies(message);
            }
        }
        resources_.set_progress(crossing, options.progress);
        result_.starts.resize(schedule.messages.size(), 0);
        result_.completions.resize(schedule.messages.size(), 0);
    }

    MessageRunResult result() override {
        result_.folded_into_one = schedule_.copies;
        result_.messages *= schedule_.copies;
        result_.bytes *= schedule_.copies;
        return std::move(result_);
    }

    void begin(Dispatcher&) override {
        for (std::uint32_t id = 0; id < waiting_.size(); ++id) {
            if (schedule_.messages[id].waits_for == 0) {
                start(id);
            }
        }
    }

    void on_done(std::uint64_t token, Dispatcher&) override {
        const auto id = static_cast<std::uint32_t>(token);
        const Message& message = schedule_.messages[id];
        const bool added = token != id;
        if (!added) {
            resources_.release(classes_[id]);
            classes_[id] = ClassId();
        }
        result_.completions[id] = dispatcher_.now().seconds();
        result_.seconds = result_.completions[id];
        if (added) {
            release(message, [&](const Message& next) { return next.from == receiver(message); });
            return;
        }
        result_.bytes += message.bytes * copies(message);
        if (++result_.messages % kProgressInterval == 0 && options_.progress) {
            options_.progress(static_cast<double>(result_.messages) / static_cast<double>(waiting_.size()));
        }
        const bool sums = message.reduces != 0 && !options_.memories.empty();
        if (sums) {
            add(id);
        }
        // What its receiver sends on waits for the sum; what its sender sends next does not.
        release(message, [&](const Message& next) { return !sums || next.from != receiver(message); });
    }

    void end(Dispatcher&) override {
        if (result_.messages == waiting_.size()) {
            return;
        }
        resources_.require_finished();
        for (std::uint32_t id = 0; id < waiting_.size(); ++id) {
            if (waiting_[id] == 0 && classes_[id].valid()) {
                throw InfeasibleError("message from " + std::to_string(schedule_.messages[id].from) + " to " +
                                      std::to_string(schedule_.messages[id].to) +
                                      " can never finish: a link on its path has no capacity");
            }
        }
        throw InternalError("a schedule of messages has a cycle");
    }

  private:
    [[nodiscard]] GpuId gpu(std::uint32_t rank) const { return placement_.gpu(rank); }

    void start(std::uint32_t id) {
        const Message& message = schedule_.messages[id];
        result_.starts[id] = dispatcher_.now().seconds();
        if (message.group != Message::kNoGroup) {
            start_reduction(id);
            return;
        }
        const GpuId from = gpu(message.from);
        const GpuId to = gpu(message.to);
        const Route route = fabric_.route(from, to, options_.paths, hash_of(from, to.value()));
        path_.take(fabric_, from, to, route);
        if (schedule_.copies > 1) {
            const ResourceId arrives = fabric_.nic_in(fabric_.nic_of(to));
            for (Demand& demand : path_.demands) {
                demand.resource = demand.resource == arrives ? fabric_.nic_in(fabric_.nic_of(from)) : demand.resource;
            }
        }
        classes_[id] = resources_.hold_flows(path_.flows(), path_.demands, bound_of(route));
        const double latency =
            latency_of(resources_, route, path_.crosses) + slow_start_of(fabric_, from, to, message.bytes);
        dispatcher_.share(classes_[id], message.bytes, SimTime::from_seconds(message.delay + latency), message.from,
                          id);
    }

    template <class Wanted>
    void release(const Message& message, const Wanted& wanted) {
        for (std::uint32_t k = 0; k < message.release_count; ++k) {
            const std::uint32_t next = schedule_.releases[message.first_release + k];
            if (wanted(schedule_.messages[next]) && --waiting_[next] == 0) {
                start(next);
            }
        }
    }

    // Where one rank stands for all it is its own receiver.
    [[nodiscard]] std::uint32_t receiver(const Message& message) const {
        return schedule_.copies > 1 ? message.from : message.to;
    }

    // The receiver reads both operands and writes the sum.
    void add(std::uint32_t id) {
        constexpr double kAccesses = 3;
        const Message& message = schedule_.messages[id];
        const GpuId at = gpu(receiver(message));
        const auto [memory, fresh] = memories_.try_emplace(at.value());
        if (fresh) {
            const Demand demand{resources_.add_resource(options_.memories[fabric_.group_of(at)]), kAccesses};
            memory->second = dispatcher_.keep(std::span(&demand, 1));
        }
        dispatcher_.share(memory->second, message.bytes, SimTime(), at.value(), std::uint64_t{id} | kSum);
    }

    // Ranks that send it.
    [[nodiscard]] double copies(const Message& message) const {
        return message.group == Message::kNoGroup ? 1 : static_cast<double>(group(message).size());
    }
    [[nodiscard]] const std::vector<std::uint32_t>& group(const Message& message) const {
        return schedule_.groups[message.group];
    }

    void start_reduction(std::uint32_t id) {
        const Message& message = schedule_.messages[id];
        std::vector<GpuId> members;
        for (const std::uint32_t rank : group(message)) {
            members.push_back(gpu(rank));
        }
        const TreeLinks tree = fabric_.tree(members, options_.paths, message.group);
        std::vector<Demand> demands;
        for (const ResourceId link : tree.links) {
            demands.push_back(Demand{link, 1});
        }
        RoutedFlow flow{gpu(message.from), gpu(message.to)};
        flow.members = std::move(members);
        flow.tree = message.group;
        classes_[id] = resources_.hold_flows(std::span(&flow, 1), demands);
        const double latency = resources_.routes_flows() ? 0 : tree.latency;
        dispatcher_.share(classes_[id], message.bytes, SimTime::from_seconds(message.delay + latency), message.from,
                          id);
    }

    const Fabric& fabric_;
    Placement placement_;
    const Schedule& schedule_;
    MessageRunOptions options_;
    ResourceModel& resources_;
    Dispatcher& dispatcher_;
    std::vector<std::uint32_t> waiting_;
    std::vector<ClassId> classes_;
    static constexpr std::uint64_t kSum =
        1ULL << 32U;  ///< of a token: the sum at the receiver of a message, and not the message
    std::map<std::uint32_t, ClassId> memories_;  ///< by GPU that adds
    Path path_;
    MessageRunResult result_;
};

// A ring in steady bookkeeping: a rank sends its next message when the last one has left and its data have come.
class RingRun final : public MessageRun, public TaskSource {
  public:
    RingRun(Simulation& simulation, const Placement& placement, const CollectiveSpec& spec, std::uint32_t ranks,
            std::uint32_t simulated, const MessageRunOptions& options, SimTime start)
        : fabric_(*simulation.fabric()),
          placement_(placement),
          spec_(spec),
          options_(options),
          resources_(simulation.resources()),
          dispatcher_(simulation.add(static_cast<TaskSource&>(*this), start)),
          ranks_(ranks),
          steps_((spec.op == CollectiveOp::all_reduce ? 2 : 1) * (ranks - 1)),
          bytes_(spec.bytes / ranks),
          edges_(simulated) {}

    MessageRunResult result() override {
        MessageRunResult result;
        result.folded_into_one = ranks_ / static_cast<std::uint32_t>(edges_.size());
        result.messages = done_ * result.folded_into_one;
        result.bytes = static_cast<double>(result.messages) * bytes_;
        result.seconds = last_.seconds();
        return result;
    }

    void end(Dispatcher&) override {
        if (done_ != static_cast<std::uint64_t>(edges_.size()) * steps_) {
            resources_.require_finished();
            throw InfeasibleError("the ring can never finish: a link on it has no capacity");
        }
    }

    void begin(Dispatcher&) override {
        double crossing = 0;
        Path path;
        for (std::uint32_t i = 0; i < edges_.size(); ++i) {
            const GpuId from = placement_.gpu(i);
            const GpuId to = placement_.gpu((i + 1) % ranks_);
            const Route route = fabric_.route(from, to, options_.paths, hash_of(from, from.value() + 1));
            double bound = bound_of(route);
            if (spec_.slow_rank == static_cast<std::int64_t>(i)) {
                for (const ResourceId link : route.resources()) {
                    bound = std::min(bound, spec_.slow_factor * fabric_.capacity(link));
                }
            }
            path.take(fabric_, from, to, route);
            edges_[i].flow = dispatcher_.keep_flows(path.flows(), path.demands, bound);
            edges_[i].latency = SimTime::from_seconds(latency_of(resources_, route, path.crosses) +
                                                      slow_start_of(fabric_, from, to, bytes_));
            crossing += path.crosses ? 1 : 0;
        }
        resources_.set_progress(crossing * steps_ * bytes_, options_.progress);
        for (std::uint32_t i = 0; i < edges_.size(); ++i) {
            advance(i);
        }
    }

    void on_done(std::uint64_t token, Dispatcher&) override {
        last_ = dispatcher_.now();
        const auto edge = static_cast<std::uint32_t>(token);
        const std::uint32_t next = edge + 1 == edges_.size() ? 0 : edge + 1;
        edges_[edge].sending = false;
        ++edges_[edge].sent;
        ++edges_[next].received;
        if (++done_ % kProgressInterval == 0 && options_.progress) {
            options_.progress(static_cast<double>(done_) / (static_cast<double>(edges_.size()) * steps_));
        }
        advance(edge);
        advance(next);
    }

  private:
    struct Edge {
        ClassId flow;
        SimTime latency;
        std::uint32_t sent = 0;
        std::uint32_t received = 0;
        bool sending = false;
    };

    void advance(std::uint32_t i) {
        Edge& edge = edges_[i];
        if (edge.sending || edge.sent == steps_ || edge.received < edge.sent) {
            return;
        }
        edge.sending = true;
        dispatcher_.share(edge.flow, bytes_, edge.latency, i, i);
    }

    const Fabric& fabric_;
    Placement placement_;
    CollectiveSpec spec_;
    MessageRunOptions options_;
    ResourceModel& resources_;
    Dispatcher& dispatcher_;
    SimTime last_;
    std::uint32_t ranks_;
    std::uint32_t steps_;
    double bytes_;
    std::vector<Edge> edges_;
    std::uint64_t done_ = 0;
};

// Smallest number of neighbouring ranks after which the ring looks the same from every link's point of view: a node
// when all nodes hang on one leaf, else a whole group of nodes under one leaf. Equal capacities are the fabric's
// construction; what has to hold is that groups are whole and that switches cannot bind.
std::uint32_t ring_period(const Fabric& fabric, const CollectiveSpec& spec, std::uint32_t ranks,
                          const MessageRunOptions& options) {
    const FabricShape& shape = fabric.shape();
    if (!options.fold || options.run.fidelity == Fidelity::packet || spec.slow_rank >= 0 || !fabric.full_bisection() ||
        options.paths != PathChoice::spray || shape.kind != FabricKind::leaf_spine ||
        ranks % shape.gpus_per_node != 0 || shape.nodes_per_domain > 1 || !shape.groups.empty()) {
        return ranks;
    }
    const std::uint32_t nodes = ranks / shape.gpus_per_node;
    if (nodes == 1) {
        return 1;
    }
    if (nodes <= shape.nodes_per_leaf) {
        return shape.gpus_per_node;
    }
    return nodes % shape.nodes_per_leaf == 0 ? shape.nodes_per_leaf * shape.gpus_per_node : ranks;
}

}  // namespace

std::unique_ptr<MessageRun> add_messages(Simulation& simulation, const Placement& placement, const Schedule& schedule,
                                         const MessageRunOptions& options, SimTime start) {
    return std::make_unique<ScheduleRun>(simulation, placement, schedule, options, start);
}

std::unique_ptr<MessageRun> add_ring(Simulation& simulation, const Placement& placement, const CollectiveSpec& spec,
                                     std::uint32_t ranks, const MessageRunOptions& options, SimTime start) {
    ORRERY_ASSERT(ranks > 1);
    const Fabric& fabric = *simulation.fabric();
    const std::uint32_t period = placement.aligned(fabric) ? ring_period(fabric, spec, ranks, options) : ranks;
    return std::make_unique<RingRun>(simulation, placement, spec, ranks, period, options, start);
}

MessageRunResult finish(Simulation& simulation, MessageRun& messages) {
    simulation.run();
    MessageRunResult result = messages.result();
    const ResourceReport report = simulation.report();
    result.events = simulation.events();
    result.solves = report.solves;
    result.max_link_utilisation = report.max_link_utilisation;
    result.packets = simulation.packet_statistics();
    result.ports = simulation.packet_report();
    return result;
}

MessageRunResult run_messages(const Fabric& fabric, const Schedule& schedule, const MessageRunOptions& options) {
    Simulation simulation(fabric, options.run);
    return finish(simulation, *add_messages(simulation, Placement(fabric), schedule, options));
}

MessageRunResult run_messages_on_simgrid(const Fabric& fabric, const Schedule& schedule, PathChoice paths,
                                         bool tightened) {
    SimgridJob job;
    job.tightened = tightened;
    for (std::size_t i = 0; i < fabric.resource_count(); ++i) {
        job.capacities.push_back(std::max(1.0, fabric.capacity(ResourceId(i))));
    }
    for (const Message& message : schedule.messages) {
        if (message.group != Message::kNoGroup) {
            throw InfeasibleError("SimGrid knows no in-network reduction: choose fidelity fluid or packet");
        }
        const Route route = fabric.route(GpuId(message.from), GpuId(message.to), paths,
                                         (static_cast<std::uint64_t>(message.from) << 32) | message.to);
        if (route.spread()) {
            throw ConfigError("SimGrid takes one path for a message: on this fabric choose network.paths: ecmp");
        }
        SimgridJob::Message out;
        out.bytes = static_cast<std::uint64_t>(std::ceil(message.bytes));
        out.delay = message.delay + route.latency;
        out.waits_for = message.waits_for;
        for (const ResourceId link : route.resources()) {
            out.links.push_back(link.value());
        }
        out.releases.assign(schedule.releases.begin() + message.first_release,
                            schedule.releases.begin() + message.first_release + message.release_count);
        job.messages.push_back(std::move(out));
    }
    const SimgridResult done = run_simgrid(job);
    MessageRunResult result;
    result.completions = done.completions;
    result.wall_seconds = done.wall_seconds;
    result.messages = done.completions.size();
    result.starts.resize(job.messages.size(), 0);
    std::vector<double> carried(job.capacities.size(), 0);
    for (std::size_t i = 0; i < job.messages.size(); ++i) {
        const SimgridJob::Message& message = job.messages[i];
        result.seconds = std::max(result.seconds, done.completions[i]);
        result.bytes += static_cast<double>(message.bytes);
        for (const std::uint32_t next : message.releases) {
            result.starts[next] = std::max(result.starts[next], done.completions[i]);
        }
        for (const std::uint32_t link : message.links) {
            carried[link] += static_cast<double>(message.bytes);
        }
    }
    for (std::size_t link = 0; link < carried.size() && result.seconds > 0; ++link) {
        result.max_link_utilisation =
            std::max(result.max_link_utilisation, carried[link] / (job.capacities[link] * result.seconds));
    }
    return result;
}

MessageRunResult run_ring(const Fabric& fabric, const CollectiveSpec& spec, std::uint32_t ranks,
                          const MessageRunOptions& options) {
    if (ranks < 2) {
        return {};
    }
    Simulation simulation(fabric, options.run);
    return finish(simulation, *add_ring(simulation, Placement(fabric), spec, ranks, options));
}

}  // namespace orrery::inline collective
