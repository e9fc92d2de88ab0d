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

#include "sim/base/random.hpp"
#include "workloads/serving/cluster/starter.hpp"

namespace orrery::serving {

class LifecycleListener {
  public:
    virtual ~LifecycleListener() = default;
    /// It computes no more. `unnoticed`: the router does not know yet; otherwise it is told at once.
    virtual void replica_fails(std::uint32_t replica, bool unnoticed) = 0;
    /// The router knows that.
    virtual void replica_lost(std::uint32_t replica) = 0;
    /// It is to take nothing new.
    virtual void replica_drains(std::uint32_t replica) = 0;
    virtual void replica_returns(std::uint32_t replica) = 0;
    /// Some replica takes requests now that did not, or the other way round.
    virtual void routes_change() = 0;
    /// Nothing is left to be served, and nothing will come.
    [[nodiscard]] virtual bool all_served() const = 0;
};

class Lifecycle {
  public:
    /// All arguments outlive this.
    Lifecycle(const ServiceSpec& spec, Fleet& fleet, Starter& starter, LifecycleListener& listener,
              ServiceResult& result)
        : spec_(spec), fleet_(fleet), starter_(starter), listener_(listener), result_(result) {}
    void begin(Dispatcher& dispatcher);
    void on_task(const Token& token);
    /// True for a replica that a fault has stopped.
    [[nodiscard]] bool down(std::uint32_t replica) const { return units_[replica].down; }
    /// True for a replica whose results are wrong without anybody knowing.
    [[nodiscard]] bool corrupt(std::uint32_t replica) const { return units_[replica].corrupt; }
    /// A replica that was down has started.
    void started(std::uint32_t replica);
    /// After the run: how long replicas were down between these times.
    void finish(SimTime from, SimTime to);

  private:
    enum Step : std::uint32_t { given, drawn, struck, cut, found, detected, joined, mended, ended };
    struct Unit {
        bool down = false;
        SimTime since;
        bool corrupt = false;
    };
    struct Source {
        const ProcessSpec* spec;
        Exposed exposed;
        std::unique_ptr<FaultProcess> process;
        RandomStream random;
        RandomStream lasts;
        SimTime due;
    };
    /// What a fault broke, until it is whole.
    struct Breakage {
        Fault fault;
        std::vector<std::uint32_t> replicas;
        bool machine = false;  ///< and not only its processes
    };
    struct Active {
        std::uint32_t id;
        Fault fault;
    };
    void wait(double seconds, Step step, std::uint32_t index);
    void expect(std::uint32_t source);
    void draw(std::uint32_t source);
    void strike(const Fault& fault);
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
    void bring_back(std::uint32_t breakage, Machine machine);
    void renew(const Place& place);
    void note();

    const ServiceSpec& spec_;
    Fleet& fleet_;
    Starter& starter_;
    LifecycleListener& listener_;
    ServiceResult& result_;
    Dispatcher* dispatcher_ = nullptr;
    std::vector<Unit> units_;  ///< by replica
    std::vector<Source> sources_;
    std::vector<Breakage> breakages_;
    std::vector<std::uint32_t> waiting_;  ///< breakages for which there is no machine
    std::vector<Fault> later_;            ///< of bursts
    std::vector<Active> active_;          ///< impairments
    std::uint32_t impairments_ = 0;       ///< that there have been
    std::vector<std::uint32_t> slow_nics_;
    std::int64_t spares_ = 0;
    RandomStream repairs_{spec_.seed, "serving/repairs"};
    bool outage_ = false;
    SimTime outage_since_;
    std::vector<std::pair<SimTime, SimTime>> outages_;
};

}  // namespace orrery::serving
