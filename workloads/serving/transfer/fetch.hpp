#pragma once
// Prefixes that come from host memory and NVMe before their sequence waits for its turn.

#include "sim/network/slots.hpp"
#include "workloads/serving/fleet/fleet.hpp"

namespace orrery::serving {

class Fetches final : public Part {
  public:
    /// All arguments outlive this.
    Fetches(Fleet& fleet, ServiceResult& result) : fleet_(fleet), result_(result) {}

    /// Brings what lower tiers have of the newest waiting sequence of a replica; false when they have nothing.
    bool start(std::uint32_t replica, std::uint32_t sequence);
    void on_done(std::uint64_t id, Dispatcher& dispatcher) override;
    /// A replica fails: what comes for it is of no use.
    void fail(std::uint32_t replica);

  private:
    struct Fetch {
        std::uint32_t replica = 0;
        std::uint32_t sequence = 0;
        std::uint32_t transfers = 0;
        bool lost = false;
    };
    Fleet& fleet_;
    ServiceResult& result_;
    Slots<Fetch> fetches_;
};

}  // namespace orrery::serving
