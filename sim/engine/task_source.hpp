#pragma once
// Reactive task sources: work that is decided as other work finishes (schedulers, collectives without a stored graph,
// faults), run on the same engine and resources as static task graphs.
//
// A source starts tasks through a dispatcher and is told when each has finished; then it may start more. A token of the
// source's own choice names a task. A decision is a task of no duration in Phase::scheduler: it comes once all that
// happens in its instant has happened. When nothing is pending the run ends; the source says whether that was its end.
// A job may have several sources as parts. Each owns its tasks, and the events of all are ordered as those of one: by entity, then in
// the order in which they were asked for.

#include "sim/engine/job.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace orrery::engine {

class Dispatcher;

class TaskSource {
  public:
    virtual ~TaskSource() = default;
    /// Starts the first tasks.
    virtual void begin(Dispatcher& dispatcher) = 0;
    /// A task has finished at the dispatcher's current time.
    virtual void on_done(std::uint64_t token, Dispatcher& dispatcher) = 0;
    /// Nothing is pending any more. Throws InfeasibleError that names what can never finish, InternalError when work is left.
    virtual void end(Dispatcher& dispatcher) { (void)dispatcher; }
};

class Dispatcher final : public EventHandler, public ActivityListener, public Job {
  public:
    /// All references outlive the run. `lead`: the first part of the same job; null: the source is alone, or the first.
    Dispatcher(Engine& engine, ResourceModel& resources, TaskSource& source, JobPlace place = {},
               Dispatcher* lead = nullptr);
    Dispatcher(const Dispatcher&) = delete;
    Dispatcher& operator=(const Dispatcher&) = delete;

    void begin() override { source_.begin(*this); }
    void end() override;

    /// Since the job's start.
    [[nodiscard]] SimTime now() const { return engine_.now() - place_.start; }
    [[nodiscard]] ResourceModel& resources() { return resources_; }

    /// A class for the whole run: given back when the job ends.
    [[nodiscard]] ClassId keep(std::span<const Demand> demands);
    [[nodiscard]] ClassId keep_flows(std::span<const RoutedFlow> flows, std::span<const Demand> demands,
                                     double rate_bound = ResourceModel::kUnbounded);

    /// A task of fixed duration. `entity` orders it among the events of its instant and phase.
    void delay(SimTime duration, std::uint32_t entity, std::uint64_t token, Phase phase = Phase::device);
    /// A task that shares resources after `latency`.
    void share(ClassId resources, double amount, SimTime latency, std::uint32_t entity, std::uint64_t token);

    void on_event(std::uint32_t datum) override;
    void on_activity_done(std::uint64_t token) override { source_.on_done(token, *this); }

  private:
    struct Pending {
        ClassId resources;  ///< invalid: a task of fixed duration
        double amount;
        std::uint64_t token;
    };
    void schedule(SimTime after, Phase phase, std::uint32_t entity, const Pending& pending);

    Engine& engine_;
    ResourceModel& resources_;
    TaskSource& source_;
    JobPlace place_;
    std::uint32_t handler_;
    ListenerId listener_;
    Dispatcher* lead_;              ///< counts the events of the job
    std::uint32_t sequence_ = 0;    ///< of the lead
    std::vector<Pending> pending_;  ///< by event datum
    std::vector<std::uint32_t> free_;
    std::vector<ClassId> kept_;
};

/// A job of several sources, which begin and end in their order. Activities of one class that finish together are told in it, too.
class SourceParts final : public Job {
  public:
    SourceParts(Engine& engine, ResourceModel& resources, std::span<TaskSource* const> sources, JobPlace place);
    void begin() override;
    void end() override;

  private:
    std::vector<std::unique_ptr<Dispatcher>> parts_;
};

}  // namespace orrery::engine
