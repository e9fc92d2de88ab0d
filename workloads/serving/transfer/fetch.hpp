#pragma once
// Prefixes that come from host memory and NVMe before their sequence waits for its turn, or once there is room when it has come.

#include "workloads/serving/transfer/sequence_loads.hpp"

namespace orrery::serving {

class Fetches final : public SequenceLoads {
  public:
    /// All arguments outlive this.
    Fetches(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result)
        : SequenceLoads(spec, fleet, result, &EngineState::end_fetch) {}

    /// Brings what lower tiers have of a waiting sequence of a replica; false when they have nothing, or it has no room.
    bool start(std::uint32_t replica, std::uint32_t sequence);
};

}  // namespace orrery::serving
