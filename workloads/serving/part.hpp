#pragma once
// A part of a service: a source of tasks of its own (sim/engine/task_source.hpp). All parts of a service are one job.
//
// The folders of serving in their order, each knowing only those before it: requests, engine, schedulers and routers, cost; what a
// scenario and a run say of a service (the files of this folder); metrics, fleet, front_end, transfer, cluster.
// A request passes the front end, admission, adapters and fetches (transfer), the scheduler of its replica and the pipeline
// (cluster); there a prompt whose replica only computes prompts goes over to a decode replica (transfer), and what is answered goes
// back to the front end. What a part calls is below it. Upwards go four functions: a request that comes to the engines (Frontend), a
// replica that plans at the end of an instant (Fleet), layers that have their experts (ExpertLoads), and a replica that has started
// (Starter).

#include "sim/engine/task_source.hpp"

namespace orrery::serving {

class Part : public TaskSource {
  public:
    void begin(Dispatcher& dispatcher) override { dispatcher_ = &dispatcher; }

  protected:
    [[nodiscard]] SimTime now() const { return dispatcher_->now(); }

    Dispatcher* dispatcher_ = nullptr;
};

/// A token of two numbers.
[[nodiscard]] constexpr std::uint64_t pair_token(std::uint32_t high, std::uint32_t low) {
    return (std::uint64_t{high} << 32U) | low;
}
[[nodiscard]] constexpr std::uint32_t high_of(std::uint64_t token) {
    return static_cast<std::uint32_t>(token >> 32U);
}
[[nodiscard]] constexpr std::uint32_t low_of(std::uint64_t token) {
    return static_cast<std::uint32_t>(token);
}

}  // namespace orrery::serving
