#pragma once
// Caches of failed replicas that come back from a copy.
//
// Claims: what a request had computed is somewhere outside its replica; the replica that takes the request makes room and reads the
// copy over a link of its own, which all copies that it reads at a time share. Then the request goes on where it was.
// Limits: copies are made in time and take no bandwidth; where a replica has no room at once, and where none runs, the
// request is computed anew.
// Source: Strati et al., "DejaVu", ICML 2024 (caches that are streamed to other hosts, and restored after a failure).
// Validated by tests/workloads/serving_faults_test.cpp.

#include "sim/network/slots.hpp"
#include "workloads/serving/fleet/fleet.hpp"

#include <optional>

namespace orrery::serving {

class KvRestores final : public Part {
  public:
    /// All arguments outlive this.
    KvRestores(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result)
        : spec_(spec), fleet_(fleet), result_(result) {}
    void begin(Dispatcher& dispatcher) override;
    /// Takes a sequence with what was cached of it; nothing when there is no room.
    [[nodiscard]] std::optional<std::uint32_t> start(std::uint32_t replica, const Sequence& sequence);
    void on_done(std::uint64_t id, Dispatcher& dispatcher) override;
    /// A replica fails: what was on its way to it is lost.
    void fail(std::uint32_t replica);

  private:
    struct Restore {
        std::uint32_t replica = 0;
        std::uint32_t sequence = 0;
        bool under_way = false;
        bool lost = false;
    };
    const ServiceSpec& spec_;
    Fleet& fleet_;
    ServiceResult& result_;
    std::vector<ClassId> links_;  ///< by replica
    Slots<Restore> restores_;
};

}  // namespace orrery::serving
