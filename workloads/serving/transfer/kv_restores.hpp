#pragma once
// Caches of failed replicas that come back from a copy.
//
// Claims: what a request had computed is somewhere outside its replica; the replica that takes the request makes room and reads the
// copy over a link of its own, which all copies that it reads at a time share. Then the request goes on where it was.
// Limits: copies are made in time and take no bandwidth; where a replica has no room at once, and where none runs, the
// request is computed anew.
// Source: Strati et al., "DejaVu", ICML 2024 (caches that are streamed to other hosts, and restored after a failure).
// Validated by tests/workloads/serving_faults_test.cpp.

#include "workloads/serving/transfer/sequence_loads.hpp"

#include <optional>

namespace orrery::serving {

class KvRestores final : public SequenceLoads {
  public:
    /// All arguments outlive this.
    KvRestores(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result)
        : SequenceLoads(spec, fleet, result, &EngineState::arrived) {}
    void begin(Dispatcher& dispatcher) override;
    /// Takes a sequence with what was cached of it; nothing when there is no room.
    [[nodiscard]] std::optional<std::uint32_t> start(std::uint32_t replica, const Sequence& sequence);

  private:
    std::vector<ClassId> links_;  ///< by replica
};

}  // namespace orrery::serving
