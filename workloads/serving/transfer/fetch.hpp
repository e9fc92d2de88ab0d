#pragma once
// Prefixes that come from host memory, NVMe, a store or another replica before their sequence waits for its turn, or once there is room when it has come.

#include "workloads/serving/transfer/sequence_loads.hpp"
#include "workloads/serving/transfer/shared_cache.hpp"

namespace orrery::serving {

class Fetches final : public SequenceLoads {
  public:
    /// All arguments outlive this.
    Fetches(const ServiceSpec& spec, Fleet& fleet, SharedCache& shared, ServiceResult& result)
        : SequenceLoads(spec, fleet, result, &EngineState::end_fetch), shared_(shared) {}

    /// Whether anything may come for sequences of a replica.
    [[nodiscard]] bool possible(const EngineState& state) const {
        return spec_.shared.given || state.limits().host_cache + state.limits().nvme_cache > 0;
    }
    /// Brings what lower tiers and others have of a waiting sequence of a replica; false when they have nothing, or it has no room.
    bool start(std::uint32_t replica, std::uint32_t sequence);

  private:
    SharedCache& shared_;
};

}  // namespace orrery::serving
