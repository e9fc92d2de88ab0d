#pragma once
// Runs a static task graph on an engine: tasks start when all they wait for has finished.
//
// In-order streams are edges between consecutive tasks of a stream, added by whoever builds the graph; the executor
// knows only dependencies. A graph that stops before every task has run (a cycle, a transfer over a dead link) is an
// error that names the first task left, never a silent end.

#include "sim/base/huge_pages.hpp"
#include "sim/engine/job.hpp"
#include "sim/engine/task_graph.hpp"

#include <functional>
#include <vector>

namespace orrery::engine {

/// How long tasks of fixed duration take where ranks change their speed.
class TaskClock {
  public:
    virtual ~TaskClock() = default;
    /// Of a task that begins at `start` of its job's time.
    [[nodiscard]] virtual SimTime duration(TaskId id, const Task& task, SimTime start) const = 0;
};

class Executor final : public EventHandler, public ActivityListener, public Job {
  public:
    /// All references outlive the run.
    Executor(Engine& engine, ResourceModel& resources, const TaskGraph& graph, JobPlace place = {});

    /// Called every few hundred thousand finished tasks with the fraction done.
    void set_progress(std::function<void(double)> progress) { progress_ = std::move(progress); }

    /// Before the run; it outlives this.
    void set_clock(const TaskClock& clock) { clock_ = &clock; }

    void begin() override;
    void end() override;

    /// Whom its activities tell.
    [[nodiscard]] ListenerId listener() const { return listener_; }

    // Times count from the job's start.
    /// Of the last completion so far.
    [[nodiscard]] SimTime finished_at() const { return last_; }
    [[nodiscard]] SimTime start_of(TaskId id) const { return starts_[id.value()]; }
    [[nodiscard]] SimTime end_of(TaskId id) const { return ends_[id.value()]; }
    /// The task whose completion let this one start; invalid for a task that waited for nothing.
    [[nodiscard]] TaskId released_by(TaskId id) const { return TaskId(released_by_[id.value()]); }

    void on_event(std::uint32_t datum) override;
    void on_activity_done(std::uint64_t token) override;

  private:
    void begin(std::uint32_t id);
    void finish(std::uint32_t id);
    [[nodiscard]] SimTime now() const { return engine_.now() - place_.start; }

    Engine& engine_;
    ResourceModel& resources_;
    const TaskGraph& graph_;
    const TaskClock* clock_ = nullptr;
    JobPlace place_;
    std::uint32_t handler_;
    ListenerId listener_;
    std::vector<ClassId> classes_;  ///< by demand set
    HugeVector<SimTime> starts_;
    HugeVector<SimTime> ends_;
    /// Of a task that waits, how many it waits for; from then on the one that released it.
    std::vector<std::uint32_t> released_by_;
    std::vector<std::uint32_t> ready_;  ///< tasks that became ready while another was being finished
    bool draining_ = false;
    std::size_t finished_ = 0;
    SimTime last_;
    std::function<void(double)> progress_;
};

}  // namespace orrery::engine
