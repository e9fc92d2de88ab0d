#pragma once
// Replicas that are started when there is more to do than the others can take, and stopped when there is less.
//
// Claims: every interval a pool wants as many replicas as its outstanding requests, or the requests that came per second, over the
// target of each, between its least and its most (the rule of Kubernetes' horizontal autoscaler), or as many as a policy of the user's own
// says. One that is wanted starts from
// cold (cluster/starter.hpp); then it takes requests. One that is not wanted any more takes no new ones, and stops when it has none and
// has had none for the keep-alive; it is wanted no less for the cooldown after the last start. A pool whose least is none starts one
// for the first request that finds none, at once (as Knative's activator does).
// Metrics come late: with `scrape` the load is measured at intervals of its own, and a look sees the latest measurement that is at least `delay`
// old (as Prometheus and the metrics API pass it on); before the first nothing changes.
// Limits: GPUs are set aside for the most replicas; those that are off cost nothing.
// Validated by tests/workloads/serving_scaling_test.cpp.

#include "include/orrery/policy.hpp"
#include "workloads/serving/cluster/starter.hpp"
#include "workloads/serving/fleet/routes.hpp"
#include "workloads/serving/front_end/frontend.hpp"

#include <deque>
#include <memory>

namespace orrery::serving {

class Autoscaler final : public FleetPart {
  public:
    /// All arguments outlive this. Switches off all replicas beyond the least of their pools.
    Autoscaler(const ServiceSpec& spec, Fleet& fleet, Routing& routing, Starter& starter, const Frontend& frontend,
               ServiceResult& result);
    void begin(Dispatcher& dispatcher) override;
    void on_done(std::uint64_t pool, Dispatcher& dispatcher) override;
    /// A request is on a replica: one that is off or about to stop is needed after all.
    void wanted(std::uint32_t replica);
    /// Seconds that GPUs were set aside until `end`, summed over all.
    [[nodiscard]] double gpu_seconds(SimTime end) const;

  private:
    struct Measurement {
        SimTime at;
        std::uint64_t outstanding = 0;
        std::uint64_t arrived = 0;
        double since_s = 0;  ///< over which requests arrived
    };
    struct Pool {
        const PoolSpec* spec;
        std::uint32_t number = 0;
        std::uint32_t first = 0;  ///< replica
        SimTime last_start;
        std::deque<Measurement> measured;  ///< the latest that a look may see, and those after it
    };
    void measure(Pool& pool, double since_s);
    void look(std::uint32_t pool);
    void start(std::uint32_t replica);
    void started(std::uint32_t replica);
    void stop(std::uint32_t replica);
    [[nodiscard]] static const Measurement* latest_seen(Pool& pool, SimTime now);
    [[nodiscard]] static std::uint32_t wanted_by_load(const Pool& pool, const Measurement& load);
    [[nodiscard]] std::uint32_t asked(const policy::Pool& pool);
    [[nodiscard]] bool stays(const Pool& pool, const Replica& replica) const;

    Routing& routing_;
    Starter& starter_;
    const Frontend& frontend_;
    std::vector<Pool> pools_;
    std::unique_ptr<policy::Autoscaler> policy_;  ///< of the user's own; null: the rule of each pool
    std::vector<SimTime> since_;                  ///< by replica: when it was started
    double gpu_s_ = 0;                            ///< of replicas that have been stopped
};

}  // namespace orrery::serving
