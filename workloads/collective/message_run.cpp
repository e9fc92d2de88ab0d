#include "workloads/collective/message_run.hpp"

#include "sim/network/simgrid_job.hpp"
#include "workloads/collective/message_path.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

namespace orrery::collective {

namespace {

constexpr std::uint64_t kProgressInterval = 1U << 18;

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
            ORRERY_ASSERT(classes_[id].valid());  // it ends once
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
                                          " can never finish: a link on its path has no capacity",
                                      ErrorCode::no_route);
            }
        }
        throw InternalError("a schedule of messages has a cycle");
    }

  private:
    [[nodiscard]] GpuId gpu(std::uint32_t rank) const { return placement_.gpu(rank); }

    void start(std::uint32_t id) {
        const Message& message = schedule_.messages[id];
        ORRERY_ASSERT(!classes_[id].valid());  // it starts once
        result_.starts[id] = dispatcher_.now().seconds();
        if (message.group != Message::kNoGroup) {
            start_reduction(id);
            return;
        }
        const GpuId from = gpu(message.from);
        const GpuId to = gpu(message.to);
        const Route route = fabric_.route(from, to, options_.paths, hash_of(from, to.value()));
        path_.take(fabric_, from, to, route);
        path_.flow.traffic_class = static_cast<std::uint8_t>(message.traffic_class);
        if (schedule_.copies > 1) {
            const ResourceId arrives = fabric_.nic_in(fabric_.nic_of(to));
            for (Demand& demand : path_.demands) {
                demand.resource = demand.resource == arrives ? fabric_.nic_in(fabric_.nic_of(from)) : demand.resource;
            }
        }
        classes_[id] = resources_.hold_flows(path_.flows(), path_.demands, bound_of(route));
        const double latency =
            latency_of(resources_, route, path_.crosses) + slow_start_of(fabric_, from, to, message.bytes);
        dispatcher_.share(classes_[id], message.bytes, SimTime::from_seconds(message.delay + latency),
                          entity_of(message.from), id);
    }

    // Where links serve in the order of starts, what ranks start at one instant takes turns: the first message of every rank, then
    // the second of each.
    [[nodiscard]] std::uint32_t entity_of(std::uint32_t rank) {
        if (options_.run.fidelity != Fidelity::analytic) {
            return rank;
        }
        turns_.resize(std::max<std::size_t>(turns_.size(), placement_.gpus()));
        Turn& own = turns_[rank];
        own = own.at == dispatcher_.now() ? Turn{own.at, own.number + 1} : Turn{dispatcher_.now(), 0};
        const auto ranks = static_cast<std::uint32_t>(turns_.size());
        return std::min(own.number, JobPlace::kEntitiesPerJob / ranks - 1) * ranks + rank;
    }

    template <class Wanted>
    void release(const Message& message, const Wanted& wanted) {
        for (std::uint32_t k = 0; k < message.release_count; ++k) {
            const std::uint32_t next = schedule_.releases[message.first_release + k];
            ORRERY_ASSERT(next < waiting_.size());
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
    struct Turn {
        SimTime at = SimTime::from_ps(-1);
        std::uint32_t number = 0;  ///< of a message among those that a rank starts at one instant
    };
    std::vector<Turn> turns_;  ///< by rank
    MessagePath path_;
    MessageRunResult result_;
};

}  // namespace

std::unique_ptr<MessageRun> add_messages(Simulation& simulation, const Placement& placement, const Schedule& schedule,
                                         const MessageRunOptions& options, SimTime start) {
    return std::make_unique<ScheduleRun>(simulation, placement, schedule, options, start);
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
    ORRERY_ASSERT(done.completions.size() == job.messages.size());
    result.completions = done.completions;
    result.wall_seconds = done.wall_seconds;
    result.messages = done.completions.size();
    result.starts.resize(job.messages.size(), 0);
    std::vector<double> carried(job.capacities.size(), 0);
    // In the order of time: a message starts with the last arrival that it waits for, and more may come.
    std::vector<std::uint32_t> order(job.messages.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return done.completions[a] < done.completions[b]; });
    std::vector<std::uint32_t> arrived(job.messages.size(), 0);
    for (const std::uint32_t i : order) {
        const SimgridJob::Message& message = job.messages[i];
        result.seconds = std::max(result.seconds, done.completions[i]);
        result.bytes += static_cast<double>(message.bytes);
        for (const std::uint32_t next : message.releases) {
            if (++arrived[next] <= job.messages[next].waits_for) {
                result.starts[next] = done.completions[i];
            }
        }
        for (const std::uint32_t link : message.links) {
            ORRERY_ASSERT(link < carried.size());
            carried[link] += static_cast<double>(message.bytes);
        }
    }
    for (std::size_t link = 0; link < carried.size() && result.seconds > 0; ++link) {
        result.max_link_utilisation =
            std::max(result.max_link_utilisation, carried[link] / (job.capacities[link] * result.seconds));
    }
    return result;
}

}  // namespace orrery::collective
