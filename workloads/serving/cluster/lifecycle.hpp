#pragma once
// When replicas can be used: faults as given or drawn, how they are noticed, and how what they took comes back.
//
// Claims: a replica that fails stops at once. When the router knows it, its requests start anew elsewhere; then its machine is
// replaced by a spare or repaired, and it starts (cluster/starter.hpp). A process that failed starts where it was. What is down
// cannot fail again, so that with exponential failures and repairs the replicas and spares are a machine-repair model. A
// preempted machine gives notice: its replicas take nothing new until it is gone. What is slow slows its stage; a NIC that is
// slow or silent slows what passes it, and the stage that spans nodes over it; that stage waits for a link that is back before the
// time-out, and hangs otherwise. A replica with silent data corruption goes on; what ends on it until that is found is counted as
// wrong, and then it stops as one that failed. Storage that is slow or out delays those that load from it.
// Limits: replicas that are off, starting or down are spared by faults; broken machines are repaired all at once, and each takes
// one spare, whatever of it broke; a KV transfer under way from a failed replica still uses its links until it would have ended; the
// iteration in which a link falls silent still ends; by packets, a transport that gives up on a silent link ends the run.
// Validated by tests/workloads/serving_faults_test.cpp.

#include "workloads/faults/fault_source.hpp"
#include "workloads/faults/impairments.hpp"
#include "workloads/serving/cluster/admission.hpp"
#include "workloads/serving/cluster/pipelines.hpp"
#include "workloads/serving/cluster/starter.hpp"

#include <optional>

namespace orrery::serving {

class Lifecycle final : public FleetPart {
  public:
    /// All arguments outlive this.
    Lifecycle(const ServiceSpec& spec, Fleet& fleet, Routing& routing, Pipelines& pipelines, Transfers& transfers,
              Admission& admission, Starter& starter, const Frontend& frontend, ServiceResult& result)
        : FleetPart(spec, fleet, result),
          routing_(routing),
          pipelines_(pipelines),
          transfers_(transfers),
          admission_(admission),
          starter_(starter),
          frontend_(frontend) {}
    void begin(Dispatcher& dispatcher) override;
    void on_done(std::uint64_t step_and_index, Dispatcher& dispatcher) override;
    /// After the run: how long replicas were down between these times.
    void finish(SimTime from, SimTime to);

  private:
    enum Step : std::uint32_t { drawn, struck, cut, found, detected, joined, mended, ended };
    struct Unit {
        bool down = false;
        SimTime since;
    };
    /// What a fault broke, until it is whole.
    struct Breakage {
        Fault fault;
        std::vector<std::uint32_t> replicas;
        bool machine = false;  ///< and not only its processes
    };
    void wait(double seconds, Step step, std::uint32_t index);
    void expect(std::uint32_t source);
    void draw(std::uint32_t source);
    void strike(const Fault& fault);
    /// Keeps what a fault broke; nothing: it was without effect.
    std::optional<std::uint32_t> broken(const Fault& fault, std::vector<std::uint32_t> replicas, bool machine);
    void stall(const Fault& fault);
    void preempt(const Fault& fault);
    void spoil(const Fault& fault);
    void impair(const Fault& fault);
    void apply();
    void apply(std::uint32_t replica);
    /// Those that run and are stopped by a fault.
    [[nodiscard]] std::vector<std::uint32_t> struck_by(const Fault& fault) const;
    [[nodiscard]] bool spans(const Replica& replica, std::uint32_t stage) const;
    [[nodiscard]] bool touches(const Place& place, std::uint32_t first, std::uint32_t gpus) const;
    void stop(std::uint32_t breakage);
    void lose(std::uint32_t breakage);
    /// A replica computes no more. `unnoticed`: the router does not know yet; otherwise it is told at once.
    void fail(std::uint32_t replica, bool unnoticed);
    /// The router knows that.
    void lose_replica(std::uint32_t replica);
    void retry(const std::vector<Sequence>& lost);
    void list(std::uint32_t replica, bool listed);
    void started(std::uint32_t replica);
    void bring_back(std::uint32_t breakage, Machine machine);
    void renew(const Place& place);
    void note();

    Routing& routing_;
    Pipelines& pipelines_;
    Transfers& transfers_;
    Admission& admission_;
    Starter& starter_;
    const Frontend& frontend_;
    std::vector<Unit> units_;  ///< by replica
    std::vector<FaultSource> sources_;
    std::vector<SimTime> due_;  ///< by source
    std::vector<Breakage> breakages_;
    std::vector<std::uint32_t> waiting_;  ///< breakages for which there is no machine
    std::vector<Fault> later_;            ///< of bursts
    Impairments impairments_;
    std::vector<std::uint32_t> slow_nics_;
    SparePool pool_{spec_.faults.recovery.pool(), 0, spec_.seed, "serving/repairs", "serving/spares"};
    std::vector<std::pair<SimTime, SimTime>> outages_;  ///< the last may be without an end
};

}  // namespace orrery::serving
