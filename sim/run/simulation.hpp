#pragma once
// One run: the only place that owns an engine, a resource model and the network back end that a scenario names.
//
// Jobs (static task graphs and task sources, any number, each with a start of its own) are added and share one clock, one
// fabric and whatever resources they add beside it. `run` plays them to their end and then checks what must hold: every job
// is done, every class was released, what was sent has arrived.
// Limits: SimGrid owns its clock, so Fidelity::simgrid is not served here (see workloads/collective/message_run.hpp).
// Validated by tests/sim/run/simulation_test.cpp.

#include "sim/engine/executor.hpp"
#include "sim/engine/task_source.hpp"
#include "sim/network/fabric.hpp"
#include "sim/network/fault.hpp"
#include "sim/network/packet/spec.hpp"
#include "sim/network/packet/statistics.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace orrery::network {
class PacketModel;
}

namespace orrery::run {

/// How the network, and all that is shared, is simulated.
enum class Fidelity { analytic, fluid, simgrid, packet };
[[nodiscard]] const std::vector<std::string>& fidelity_names();

/// What a run is built from, beside its fabric.
struct RunSettings {
    Fidelity fidelity = Fidelity::fluid;
    SimTime window;                       ///< completions of the fluid model are grouped within it; zero: exact
    PacketSpec packets;                   ///< of Fidelity::packet
    std::vector<TimedFault> link_events;  ///< of Fidelity::packet
    std::uint64_t seed = 1;
    bool links_change = false;  ///< ResourceModel::set_capacity will be called on links between nodes
    std::uint32_t threads = 1;  ///< that share the packets of Fidelity::packet; any number gives the same results
};

class Simulation {
  public:
    /// `fabric` outlives this. Precondition: not Fidelity::simgrid. Throws ConfigError when the packets' specification
    /// contradicts itself, InfeasibleError when they do not suit the fabric.
    Simulation(const Fabric& fabric, const RunSettings& settings);
    /// Without a fabric: fluid sharing of what jobs bring along.
    Simulation();

    [[nodiscard]] const Fabric* fabric() const { return fabric_; }
    [[nodiscard]] ResourceModel& resources() { return *resources_; }
    [[nodiscard]] bool by_packet() const { return packets_ != nullptr; }

    /// Jobs start at `start` of this run and count their own time from there. What they refer to outlives the run.
    Executor& add(const TaskGraph& graph, SimTime start = SimTime());
    Dispatcher& add(TaskSource& source, SimTime start = SimTime());
    /// Sources that are parts of one job.
    void add(std::span<TaskSource* const> parts, SimTime start = SimTime());
    [[nodiscard]] std::size_t jobs() const { return jobs_.size(); }

    /// No job starts anything because something else has ended: packets may be simulated ahead of what is told of them.
    void run_ahead();
    /// Before the run, at packet fidelity (else of no effect): as PacketModel::number_flows.
    void number_flows();

    /// Once, after the last `add`. Throws InfeasibleError that names what can never finish.
    void run();

    /// Events of the engine and of the network.
    [[nodiscard]] std::uint64_t events() const { return engine_.events() + resources_->report(0).events; }
    [[nodiscard]] ResourceReport report() const;
    /// Of packet fidelity, else nothing.
    [[nodiscard]] std::optional<PacketStatistics> packet_statistics() const;
    [[nodiscard]] PacketReport packet_report() const;
    /// As PacketModel::flow_times.
    [[nodiscard]] std::vector<FlowTime> flow_times() const;

  private:
    [[nodiscard]] JobPlace next_place(SimTime start) const;
    template <class T, class Work>
    T& add_job(Work& work, SimTime start);

    const Fabric* fabric_ = nullptr;
    Engine engine_;
    std::unique_ptr<ResourceModel> resources_;
    PacketModel* packets_ = nullptr;  ///< what `resources_` is at packet fidelity
    std::vector<std::unique_ptr<Job>> jobs_;
    std::vector<SimTime> starts_;
};

}  // namespace orrery::run
