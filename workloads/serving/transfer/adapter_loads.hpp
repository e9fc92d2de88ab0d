#pragma once
// Sequences that wait for a slot for their adapter, and adapters on their way from host memory.

#include "sim/network/slots.hpp"
#include "workloads/serving/fleet/fleet.hpp"
#include "workloads/serving/metrics/request_timeline.hpp"
#include "workloads/serving/transfer/fetch.hpp"

#include <deque>
#include <map>

namespace orrery::serving {

class AdapterLoads final : public FleetPart {
  public:
    /// All arguments outlive this.
    AdapterLoads(const ServiceSpec& spec, Fleet& fleet, Fetches& fetches, RequestTimeline& timeline,
                 ServiceResult& result)
        : FleetPart(spec, fleet, result), fetches_(fetches), timeline_(timeline), queues_(fleet.size()) {}

    /// The newest waiting sequence of a replica goes on when its adapter is there: to what lower tiers have of its prefix, and to its
    /// turn. Until then it is set aside.
    void enter(std::uint32_t replica, std::uint32_t sequence);
    /// Sequences have left a replica: the adapters that were wanted first get the slots that nobody uses any more.
    void fill(std::uint32_t replica);
    void on_done(std::uint64_t id, Dispatcher& dispatcher) override;
    /// A replica fails, with all that waits there.
    void fail(std::uint32_t replica);

  private:
    struct Waiter {
        std::uint32_t sequence;
        SimTime since;
    };
    struct Queue {
        std::deque<std::uint32_t> without_slot;                ///< adapters, in the order in which they were wanted
        std::map<std::uint32_t, std::vector<Waiter>> waiters;  ///< by adapter
        std::uint32_t coming = 0;                              ///< adapters
    };
    struct Load {
        std::uint32_t replica = 0;
        std::uint32_t adapter = 0;
        bool lost = false;
        bool under_way = false;
    };
    [[nodiscard]] bool ready(std::uint32_t replica, std::uint32_t sequence);
    void go_on(std::uint32_t replica, std::uint32_t sequence);
    void bring(std::uint32_t replica, std::uint32_t adapter);
    void note(std::uint32_t replica);

    Fetches& fetches_;
    RequestTimeline& timeline_;
    std::vector<Queue> queues_;  ///< by replica
    Slots<Load> loads_;
};

}  // namespace orrery::serving
