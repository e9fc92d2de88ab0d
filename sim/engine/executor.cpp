#include "sim/engine/executor.hpp"

namespace orrery::engine {

namespace {
// The high bit of an event's datum: the latency of an activity has passed (else: a fixed task has finished).
constexpr std::uint32_t kLatencyOver = 0x80000000U;
constexpr std::size_t kProgressInterval = 1U << 18;
constexpr SimTime kNotStarted = SimTime::max();
}  // namespace

Executor::Executor(Engine& engine, ResourceModel& resources, const TaskGraph& graph, JobPlace place)
    : engine_(engine),
      resources_(resources),
      graph_(graph),
      place_(place),
      handler_(engine.add_handler(*this)),
      listener_(resources.add_listener(*this)),
      classes_(graph.demand_set_count()),
      starts_(graph.size(), kNotStarted),
      ends_(graph.size()),
      released_by_(graph.predecessor_counts()) {
    ORRERY_ASSERT(graph.size() < kLatencyOver);
}

void Executor::begin() {
    // `begin` may finish zero-length work at once, so the roots are listed before any of them runs.
    std::vector<std::uint32_t> roots;
    for (std::uint32_t id = 0; id < graph_.size(); ++id) {
        if (released_by_[id] == 0) {
            roots.push_back(id);
            released_by_[id] = TaskId().value();
        }
    }
    for (const std::uint32_t id : roots) {
        begin(id);
    }
}

void Executor::end() {
    if (finished_ != graph_.size()) {
        resources_.require_finished();
        for (std::uint32_t id = 0; id < graph_.size(); ++id) {
            if (ends_[id] == SimTime() && starts_[id] <= now() &&
                graph_.task(TaskId(id)).activity != Task::kNoActivity) {
                throw InfeasibleError("task '" + graph_.name_of(TaskId(id)) + "' of rank " +
                                          std::to_string(graph_.task(TaskId(id)).rank) +
                                          " can never finish: a resource on its path has no capacity",
                                      ErrorCode::no_route);
            }
        }
        throw InternalError("the task graph has a cycle: " + std::to_string(graph_.size() - finished_) +
                            " tasks never became ready");
    }
    for (const ClassId id : classes_) {
        if (id.valid()) {
            resources_.release(id);
        }
    }
}

void Executor::begin(std::uint32_t id) {
    const Task task = graph_.task(TaskId(id));
    starts_[id] = now();
    const bool activity = task.activity != Task::kNoActivity;
    if (task.duration > SimTime()) {
        const SimTime takes =
            clock_ != nullptr && !activity ? clock_->duration(TaskId(id), task, starts_[id]) : task.duration;
        engine_.schedule(engine_.now() + takes, event_order(Phase::device, place_.entities + task.rank, id), handler_,
                         activity ? id | kLatencyOver : id);
    } else if (activity) {
        on_event(id | kLatencyOver);
    } else {
        finish(id);
    }
}

void Executor::on_event(std::uint32_t datum) {
    if ((datum & kLatencyOver) == 0) {
        finish(datum);
        return;
    }
    const std::uint32_t id = datum & ~kLatencyOver;
    const TaskGraph::Activity activity = graph_.activity(TaskId(id));
    ClassId& known = classes_[activity.demand_set];
    if (!known.valid()) {
        known = resources_.hold_flows(graph_.flows(activity.demand_set), graph_.demands(activity.demand_set),
                                      graph_.bound(activity.demand_set));
    }
    resources_.start(known, activity.amount, listener_, id);
}

void Executor::on_activity_done(std::uint64_t token) {
    finish(static_cast<std::uint32_t>(token));
}

void Executor::finish(std::uint32_t id) {
    ends_[id] = now();
    last_ = ends_[id];
    if (++finished_ % kProgressInterval == 0 && progress_) {
        progress_(static_cast<double>(finished_) / static_cast<double>(graph_.size()));
    }
    graph_.for_successors(TaskId(id), [&](std::uint32_t next) {
        ORRERY_ASSERT(released_by_[next] > 0);
        if (--released_by_[next] == 0) {
            released_by_[next] = id;
            ready_.push_back(next);
        }
    });
    // A chain of zero-length tasks is worked off here and not by recursion, which could exhaust the stack.
    if (draining_) {
        return;
    }
    draining_ = true;
    while (!ready_.empty()) {
        const std::uint32_t next = ready_.back();
        ready_.pop_back();
        begin(next);
    }
    draining_ = false;
}

}  // namespace orrery::engine
