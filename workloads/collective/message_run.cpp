#include "workloads/collective/message_run.hpp"

#include "sim/engine/fluid.hpp"
#include "sim/engine/task_source.hpp"
#include "sim/network/analytic.hpp"
#include "sim/network/simgrid_job.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

namespace orrery {

namespace {

constexpr std::uint64_t kProgressInterval = 1U << 18;

std::unique_ptr<ResourceModel> make_sharing(Engine& engine, const Fabric& fabric, const MessageRunOptions& options) {
    if (options.packets != nullptr) {
        return std::make_unique<PacketModel>(engine, fabric, *options.packets, options.link_events, options.seed);
    }
    if (options.analytic) {
        return std::make_unique<AnalyticModel>(engine);
    }
    return std::make_unique<FluidModel>(engine, options.batch_window);
}

std::vector<Demand> demands_of(const Route& route) {
    std::vector<Demand> demands;
    for (const ResourceId link : route.resources()) {
        demands.push_back(Demand{link, 1});
    }
    return demands;
}

// A message as a flow between nodes; nothing inside one.
std::vector<RoutedFlow> flow_of(const Fabric& fabric, std::uint32_t from, std::uint32_t to) {
    if (fabric.node_of(GpuId(from)) == fabric.node_of(GpuId(to))) {
        return {};
    }
    return {RoutedFlow{GpuId(from), GpuId(to)}};
}

// Latency before the sharing of a message begins.
double latency_of(const ResourceModel& sharing, const Route& route, bool crosses) {
    return sharing.routes_flows() && crosses ? 0 : route.latency;
}

void watch(ResourceModel& sharing, double bytes, const MessageRunOptions& options) {
    if (auto* packets = dynamic_cast<PacketModel*>(&sharing)) {
        packets->set_progress(bytes, options.progress);
    }
}

void measure(const Fabric& fabric, const ResourceModel& sharing, MessageRunResult& result) {
    if (const auto* packets = dynamic_cast<const PacketModel*>(&sharing)) {
        result.packets = packets->network().statistics();
        result.ports = packets->network().report();
        result.events += result.packets->events;
        result.max_link_utilisation = result.packets->max_link_utilisation;
        return;
    }
    const auto* fluid = dynamic_cast<const FluidModel*>(&sharing);
    if (fluid == nullptr || result.seconds <= 0) {
        return;
    }
    result.solves = fluid->solves();
    for (std::size_t i = 0; i < fabric.resource_count(); ++i) {
        const ResourceId id(i);
        if (fabric.capacity(id) > 0) {
            result.max_link_utilisation =
                std::max(result.max_link_utilisation, fluid->carried(id) / (fabric.capacity(id) * result.seconds));
        }
    }
}

// Runs a stored schedule: each message waits for its count of arrivals, then for its path's latency, then shares.
class ScheduleRun final : public TaskSource {
  public:
    ScheduleRun(const Fabric& fabric, const Schedule& schedule, const MessageRunOptions& options)
        : fabric_(fabric),
          schedule_(schedule),
          options_(options),
          sharing_(make_sharing(engine_, fabric, options)),
          dispatcher_(engine_, *sharing_, *this),
          classes_(schedule.messages.size()) {
        fabric.add_to(*sharing_);
        waiting_.reserve(schedule.messages.size());
        double crossing = 0;
        for (const Message& message : schedule.messages) {
            waiting_.push_back(message.waits_for);
            const bool crosses = fabric.node_of(GpuId(message.from)) != fabric.node_of(GpuId(message.to));
            crossing += crosses ? message.bytes * copies(message) : 0;
        }
        watch(*sharing_, crossing, options);
        result_.starts.resize(schedule.messages.size(), 0);
        result_.completions.resize(schedule.messages.size(), 0);
    }

    MessageRunResult run() {
        dispatcher_.run();
        if (result_.messages != waiting_.size()) {
            sharing_->require_finished();
            for (std::uint32_t id = 0; id < waiting_.size(); ++id) {
                if (waiting_[id] == 0 && classes_[id].valid()) {
                    throw InfeasibleError("message from " + std::to_string(schedule_.messages[id].from) + " to " +
                                          std::to_string(schedule_.messages[id].to) +
                                          " can never finish: a link on its path has no capacity");
                }
            }
            throw InternalError("a schedule of messages has a cycle");
        }
        result_.seconds = engine_.now().seconds();
        result_.events = engine_.events();
        measure(fabric_, *sharing_, result_);
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
        sharing_->release(classes_[id]);
        classes_[id] = ClassId();
        result_.completions[id] = engine_.now().seconds();
        result_.bytes += message.bytes * copies(message);
        if (++result_.messages % kProgressInterval == 0 && options_.progress) {
            options_.progress(static_cast<double>(result_.messages) / static_cast<double>(waiting_.size()));
        }
        for (std::uint32_t k = 0; k < message.release_count; ++k) {
            const std::uint32_t next = schedule_.releases[message.first_release + k];
            if (--waiting_[next] == 0) {
                start(next);
            }
        }
    }

  private:
    void start(std::uint32_t id) {
        const Message& message = schedule_.messages[id];
        result_.starts[id] = engine_.now().seconds();
        demands_.clear();
        if (message.group != Message::kNoGroup) {
            start_reduction(id);
            return;
        }
        const Route route = fabric_.route(GpuId(message.from), GpuId(message.to), options_.paths,
                                          (static_cast<std::uint64_t>(message.from) << 32) | message.to);
        for (const ResourceId link : route.resources()) {
            demands_.push_back(Demand{link, 1});
        }
        const std::vector<RoutedFlow> flow = flow_of(fabric_, message.from, message.to);
        classes_[id] = sharing_->hold_flows(flow, demands_);
        const double latency = latency_of(*sharing_, route, !flow.empty());
        dispatcher_.share(classes_[id], message.bytes, SimTime::from_seconds(message.delay + latency), message.from,
                          id);
    }

    // Ranks that send it.
    [[nodiscard]] double copies(const Message& message) const {
        return message.group == Message::kNoGroup ? 1 : static_cast<double>(group(message).size());
    }
    [[nodiscard]] const std::vector<GpuId>& group(const Message& message) const {
        return schedule_.groups[message.group];
    }

    void start_reduction(std::uint32_t id) {
        const Message& message = schedule_.messages[id];
        const TreeLinks tree = fabric_.tree(group(message), options_.paths, message.group);
        for (const ResourceId link : tree.links) {
            demands_.push_back(Demand{link, 1});
        }
        RoutedFlow flow{GpuId(message.from), GpuId(message.to)};
        flow.members = group(message);
        flow.tree = message.group;
        classes_[id] = sharing_->hold_flows(std::span(&flow, 1), demands_);
        const double latency = sharing_->routes_flows() ? 0 : tree.latency;
        dispatcher_.share(classes_[id], message.bytes, SimTime::from_seconds(message.delay + latency), message.from,
                          id);
    }

    const Fabric& fabric_;
    const Schedule& schedule_;
    const MessageRunOptions& options_;
    Engine engine_;
    std::unique_ptr<ResourceModel> sharing_;
    Dispatcher dispatcher_;
    std::vector<std::uint32_t> waiting_;
    std::vector<ClassId> classes_;
    std::vector<Demand> demands_;
    MessageRunResult result_;
};

// A ring in steady bookkeeping: a rank sends its next message when the last one has left and its data have come.
class RingRun final : public TaskSource {
  public:
    RingRun(const Fabric& fabric, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t simulated,
            const MessageRunOptions& options)
        : fabric_(fabric),
          options_(options),
          sharing_(make_sharing(engine_, fabric, options)),
          dispatcher_(engine_, *sharing_, *this),
          ranks_(ranks),
          steps_((spec.op == CollectiveOp::all_reduce ? 2 : 1) * (ranks - 1)),
          bytes_(spec.bytes / ranks),
          edges_(simulated) {
        fabric.add_to(*sharing_);
        double crossing = 0;
        for (std::uint32_t i = 0; i < simulated; ++i) {
            const Route route = fabric.route(GpuId(i), GpuId((i + 1) % ranks), options.paths,
                                             (static_cast<std::uint64_t>(i) << 32) | (i + 1));
            double bound = ResourceModel::kUnbounded;
            if (spec.slow_rank == static_cast<std::int64_t>(i)) {
                bound = spec.slow_factor * fabric.capacity(route.links[0]);
                for (const ResourceId link : route.resources()) {
                    bound = std::min(bound, spec.slow_factor * fabric.capacity(link));
                }
            }
            const std::vector<RoutedFlow> flow = flow_of(fabric, i, (i + 1) % ranks);
            edges_[i].flow = sharing_->hold_flows(flow, demands_of(route), bound);
            edges_[i].latency = SimTime::from_seconds(latency_of(*sharing_, route, !flow.empty()));
            crossing += flow.empty() ? 0 : 1;
        }
        watch(*sharing_, crossing * steps_ * bytes_, options);
    }

    MessageRunResult run() {
        dispatcher_.run();
        const std::uint64_t expected = static_cast<std::uint64_t>(edges_.size()) * steps_;
        if (done_ != expected) {
            sharing_->require_finished();
            throw InfeasibleError("the ring can never finish: a link on it has no capacity");
        }
        MessageRunResult result;
        result.folded_into_one = ranks_ / static_cast<std::uint32_t>(edges_.size());
        result.messages = done_ * result.folded_into_one;
        result.bytes = static_cast<double>(result.messages) * bytes_;
        result.seconds = engine_.now().seconds();
        result.events = engine_.events();
        measure(fabric_, *sharing_, result);
        return result;
    }

    void begin(Dispatcher&) override {
        for (std::uint32_t i = 0; i < edges_.size(); ++i) {
            advance(i);
        }
    }

    void on_done(std::uint64_t token, Dispatcher&) override {
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
    const MessageRunOptions& options_;
    Engine engine_;
    std::unique_ptr<ResourceModel> sharing_;
    Dispatcher dispatcher_;
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
    if (!options.fold || options.packets != nullptr || spec.slow_rank >= 0 || !fabric.full_bisection() ||
        options.paths != PathChoice::spray || shape.kind != FabricKind::leaf_spine ||
        ranks % shape.gpus_per_node != 0) {
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

MessageRunResult run_messages(const Fabric& fabric, const Schedule& schedule, const MessageRunOptions& options) {
    return ScheduleRun(fabric, schedule, options).run();
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
            throw InfeasibleError("SimGrid knows no sums inside switches: choose fidelity fluid or packet");
        }
        const Route route = fabric.route(GpuId(message.from), GpuId(message.to), paths,
                                         (static_cast<std::uint64_t>(message.from) << 32) | message.to);
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
    for (std::size_t i = 0; i < job.messages.size(); ++i) {
        result.seconds = std::max(result.seconds, done.completions[i]);
        result.bytes += static_cast<double>(job.messages[i].bytes);
    }
    return result;
}

MessageRunResult run_ring(const Fabric& fabric, const CollectiveSpec& spec, std::uint32_t ranks,
                          const MessageRunOptions& options) {
    if (ranks < 2) {
        return {};
    }
    return RingRun(fabric, spec, ranks, ring_period(fabric, spec, ranks, options), options).run();
}

}  // namespace orrery
