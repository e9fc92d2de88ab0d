#pragma once
// Cold starts: what a replica does before its first request, one part after another.
//
// Claims: a machine is provided, its container image comes over the registry's link, processes and communicators are made, the
// weights come, and the engine warms up (graphs, first kernels); the time is the sum of the parts. All replicas of a pool that
// start share the registry's link, and that of the storage where weights come from it. Weights from host memory come over the
// replica's own link to its host; weights of a peer come over the fabric from a replica of the pool that runs (of those the one
// that sends the fewest copies), which goes on serving, and share its links with whatever else is on them.
// A process that failed starts anew where it was: no machine and no image. A repaired machine has its image, but nothing in host
// memory. Where no peer runs, and where host memory is empty, weights come from storage.
// Limits: a start is not interrupted; a peer that fails while it sends goes on sending.
// Sources: stages as in Fu et al., "ServerlessLLM", OSDI 2024, and "ElasticMoE", arXiv:2510.02613 (weights of peers).
// Validated by tests/workloads/serving_faults_test.cpp and serving_scaling_test.cpp.

#include "workloads/serving/fleet/fleet.hpp"

#include <functional>
#include <vector>

namespace orrery::serving {

/// Where a replica starts.
enum class Machine : std::uint8_t { same, repaired, fresh };

class Starter final : public FleetPart {
  public:
    /// All arguments outlive this.
    Starter(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result)
        : FleetPart(spec, fleet, result), starts_(fleet.size()), sending_(fleet.size()) {}
    void begin(Dispatcher& dispatcher) override;
    /// `started` is told when the replica could take requests. Precondition: it is not starting.
    void start(std::uint32_t replica, Machine machine, std::function<void(std::uint32_t replica)> started);
    void on_done(std::uint64_t part_and_replica, Dispatcher& dispatcher) override;
    /// Share of the storage's bandwidth that is left.
    void set_storage(double factor);

  private:
    struct Start {
        Machine machine = Machine::same;
        SimTime since;           ///< of the part under way
        std::uint32_t peer = 0;  ///< that sends weights
        bool from_peer = false;
        std::function<void(std::uint32_t)> started;
    };
    struct Links {
        ClassId registry, storage;
        ResourceId storage_link;
    };
    void run(std::uint32_t replica, StartPart part);
    [[nodiscard]] bool has(std::uint32_t replica, StartPart part) const;
    void load(std::uint32_t replica);
    [[nodiscard]] std::optional<std::uint32_t> find_peer(std::uint32_t replica) const;

    std::vector<Start> starts_;           ///< by replica
    std::vector<Links> links_;            ///< by pool
    std::vector<std::uint32_t> sending_;  ///< copies of weights, by replica
};

}  // namespace orrery::serving
