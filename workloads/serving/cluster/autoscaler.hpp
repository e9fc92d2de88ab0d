#pragma once
// Replicas that are started when there is more to do than the others can take, and stopped when there is less.
//
// Claims: every interval a pool wants as many replicas as its outstanding requests over the target of each, between its least
// and its most (the rule of Kubernetes' horizontal autoscaler with a queue as its metric). Starting one takes the time to
// provision it, the transfer of its weights over the storage's link, which all that start share, and the time to warm up;
// then it takes requests. One that is not wanted any more takes no new ones, and stops when it has none; it is wanted no less
// for the cooldown after the last start.
// Limits: GPUs are set aside for the most replicas; those that are off cost nothing.
// Validated by tests/workloads/serving_scaling_test.cpp.

#include "workloads/serving/cluster/lifecycle.hpp"

namespace orrery::inline serving {

class Autoscaler {
  public:
    /// All arguments outlive this. Switches off all replicas beyond the least of their pools.
    Autoscaler(const ServiceSpec& spec, Fleet& fleet, LifecycleListener& listener, ServiceResult& result);
    void begin(Dispatcher& dispatcher);
    void on_task(const Token& token);
    /// Seconds that GPUs were set aside until `end`, summed over all.
    [[nodiscard]] double gpu_seconds(SimTime end) const;

  private:
    enum Step : std::uint32_t { provisioned, loaded, warm, tick };
    struct Pool {
        const PoolSpec* spec;
        std::uint32_t first = 0;  ///< replica
        SimTime last_start;
    };
    void look(std::uint32_t pool);
    void start(std::uint32_t replica);
    void stop(std::uint32_t replica);

    Fleet& fleet_;
    LifecycleListener& listener_;
    ServiceResult& result_;
    Dispatcher* dispatcher_ = nullptr;
    std::vector<Pool> pools_;
    std::vector<ClassId> storage_;  ///< by pool
    std::vector<SimTime> since_;    ///< by replica: when it was started
    double gpu_s_ = 0;              ///< of replicas that have been stopped
};

}  // namespace orrery::inline serving
