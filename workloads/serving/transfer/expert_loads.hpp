#pragma once
// Iterations of replicas whose experts live outside the devices: layers that wait for what they need.
//
// Claims: an iteration is its layers of experts one after another, of equal times. At the first of them, and whenever one begins, the
// predictions for the layers up to `ahead` further on are known; what they name comes layer by layer, one layer at a time. What no
// prediction named comes when its layer begins, at the same time. A layer waits for both, and its experts pass the memory, the link of
// their tier and every rank's own link to the host, each rank its part, as copies of a run do (sim/network/node_memory.hpp).
// Experts on drives that devices do not reach pass through DRAM as a stream.
// Limits: a layer waits for all that was predicted for it, what came in vain too; no layer is split; jobs of one cluster do not share
// the memories of a node.
// Sources: engine/expert_cache.hpp.
// Validated by tests/workloads/expert_cache_test.cpp (by hand).

#include "sim/network/node_memory.hpp"
#include "workloads/serving/fleet/fleet.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <optional>

namespace orrery::serving {

class ExpertLoads final : public FleetPart {
  public:
    /// All arguments outlive this. Precondition: the service has a fabric and a host.
    ExpertLoads(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result) : FleetPart(spec, fleet, result) {}
    /// Who is told that the iteration of a batch is over. Before the run.
    void when_done(std::function<void(std::uint32_t replica, std::uint32_t batch)> done) { done_ = std::move(done); }
    void begin(Dispatcher& dispatcher) override;
    void on_done(std::uint64_t token, Dispatcher& dispatcher) override;
    /// After the run: counts of experts that were elsewhere.
    void finish();

    /// Begins an iteration whose layers take `seconds` in all. Precondition: the pool has experts elsewhere.
    void start(std::uint32_t replica, std::uint32_t entry, std::uint64_t tokens, double seconds);

  private:
    enum What : std::uint32_t { layers_done, demanded, predicted };
    struct Way {  ///< from a tier to all ranks
        ClassId links;
        SimTime latency;
        double bytes = 0;  ///< of an expert and rank
    };
    struct Play {
        std::optional<ExpertCache> cache;
        Way from_dram, from_home;
        std::uint32_t ahead = 0;
        // Of the iteration under way:
        const std::vector<LayerLoads>* loads = nullptr;
        std::uint32_t entry = 0;
        double layer_s = 0, whole_s = 0;
        std::uint32_t layer = 0;          ///< that waits, or that the layers under way end before
        std::uint32_t known = 0;          ///< layers whose predictions are known
        std::deque<std::uint32_t> queue;  ///< layers whose predicted experts have yet to come
        std::uint32_t transfers = 0;      ///< of the first of them
        std::uint32_t missing = 0;        ///< transfers of what the layer demanded
        bool waits = false;
        SimTime since;
    };
    void add(const PoolSpec& pool, const std::vector<GpuId>& gpus);
    [[nodiscard]] Way way(std::size_t tier, const std::vector<GpuId>& gpus, double bytes);
    std::uint32_t bring(std::uint32_t replica, const LayerLoads::From& from, What what);
    void begin_layer(std::uint32_t replica);
    void bring_next(std::uint32_t replica);
    void go_on_if_ready(std::uint32_t replica);

    std::function<void(std::uint32_t, std::uint32_t)> done_;
    std::optional<NodeMemory> memory_;
    std::vector<std::unique_ptr<Play>> plays_;  ///< by replica
};

}  // namespace orrery::serving
