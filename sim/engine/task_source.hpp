#pragma once
// Reactive task sources: work that is decided as other work finishes (schedulers, collectives without a stored graph,
// faults), run on the same engine and resources as static task graphs.
//
// A source starts tasks through a dispatcher and is told when each has finished; then it may start more. A token of the
// source's own choice names a task. When nothing is pending the run ends; the source says whether that was its end.

#include "sim/engine/engine.hpp"
#include "sim/engine/resource_model.hpp"

#include <cstdint>
#include <vector>

namespace orrery {

class Dispatcher;

class TaskSource {
  public:
    virtual ~TaskSource() = default;
    /// Starts the first tasks.
    virtual void begin(Dispatcher& dispatcher) = 0;
    /// A task has finished at the dispatcher's current time.
    virtual void on_done(std::uint64_t token, Dispatcher& dispatcher) = 0;
};

class Dispatcher final : public EventHandler, public ActivityListener {
  public:
    /// All three must outlive the dispatcher. Takes over as the listener of `sharing`.
    Dispatcher(Engine& engine, ResourceModel& sharing, TaskSource& source);

    /// Runs the source until nothing is pending; returns the time of the last event.
    SimTime run();

    [[nodiscard]] SimTime now() const { return engine_.now(); }
    [[nodiscard]] ResourceModel& sharing() { return sharing_; }

    /// A task of fixed duration. `entity` orders it among the events of its instant.
    void delay(SimTime duration, std::uint32_t entity, std::uint64_t token);
    /// A task that shares resources after `latency`.
    void share(ClassId resources, double amount, SimTime latency, std::uint32_t entity, std::uint64_t token);

    void on_event(std::uint32_t datum) override;
    void on_activity_done(std::uint64_t cookie) override { source_.on_done(cookie, *this); }

  private:
    struct Pending {
        ClassId resources;  ///< invalid: a task of fixed duration
        double amount;
        std::uint64_t token;
    };
    void schedule(SimTime after, std::uint32_t entity, const Pending& pending);

    Engine& engine_;
    ResourceModel& sharing_;
    TaskSource& source_;
    std::uint32_t handler_;
    std::uint32_t sequence_ = 0;
    std::vector<Pending> pending_;  ///< by event datum
    std::vector<std::uint32_t> free_;
};

}  // namespace orrery
