#pragma once
// The part of lowering that moves states and activations between a device and the memories of its node, and lets the host update
// weights.
//
// Claims: weights of a layer are fetched while the `prefetch` layers before it compute; what a layer keeps leaves behind its forward
// pass and comes back as weights do; gradients leave behind the backward pass. The host reads 12 B of states and the gradient of each
// weight and writes 12 B of states and 2 B of the weight in 16 bits (Adam with fp32 master weights): 26 B and the gradient. States on
// drives are read into DRAM ahead of that and written back behind it, layer by layer, each direction in order.
// Delayed updates are those of the step before, so that one iteration shows the steady state.
// Sources: as offload_spec.hpp. Validated by tests/workloads/offload_test.cpp (closed forms).

#include "workloads/training/lowering/lowering_units.hpp"
#include "workloads/training/lowering/node_memories.hpp"

#include <array>

namespace orrery::training {

class OffloadLowering : public UnitLowering {
  protected:
    /// `memory`: null where the plan does not offload, and then all below does nothing.
    OffloadLowering(const TrainingInput& input, const NodeMemories* memory, RankCopies ranks);

    /// Before the passes. `shares`: weights of each unit that a rank updates.
    void begin_offload(std::vector<double> shares);
    /// Before the pass of a unit: adds what it waits for to `inputs`, by rank.
    void fetch_parameters(std::uint32_t unit, TaskLists& inputs);
    void fetch_activations(std::uint32_t unit, TaskLists& inputs);
    /// What fetch_parameters added last for a rank.
    [[nodiscard]] const std::vector<TaskId>& fetched(std::uint32_t rank) const { return fetched_[rank]; }
    /// After it. `scattered`: the reductions of the unit's gradients, by rank; without overlap the next pass waits for these copies.
    void store_activations(std::uint32_t unit);
    /// Of weights that the pass of the unit has changed.
    void store_parameters(std::uint32_t unit);
    void store_gradients(std::uint32_t unit, std::uint32_t micro_batch, TaskLists& scattered);
    /// The norm of all gradients, updates by host and device, and the end of the step, which waits for all of them.
    void finish_offloaded(const TaskLists& reduced, double updated);
    /// The end of a step without gradients: each rank waits for `after` and for what is on its way back.
    void end_step(const TaskLists& after);

  private:
    struct Step {
        std::uint32_t demands;
        double latency;
    };
    using Tasks = std::vector<TaskId>;
    [[nodiscard]] GpuId gpu(std::uint32_t rank) const { return in_.placement.gpu(out_.ranks[rank]); }
    [[nodiscard]] const NodeHost& host(std::uint32_t rank) const { return *in_.host_of(gpu(rank)); }
    [[nodiscard]] const NodeMemory& tiers_of(std::uint32_t rank) const { return memory_->of(gpu(rank)); }
    /// Where the host works on what is in a tier: there, or in DRAM.
    [[nodiscard]] std::size_t home(std::uint32_t rank, std::size_t tier) const {
        return host(rank).tiers[tier].addressed() ? tier : host(rank).dram();
    }
    [[nodiscard]] std::size_t gradient_home(std::uint32_t rank) const;
    Step step_of(std::uint32_t rank, std::size_t tier, std::uint8_t stream);
    TaskId copy(std::uint32_t rank, std::size_t tier, std::uint8_t stream, const char* name, double bytes,
                const Tasks& after);
    /// From a tier to the device, or back, with the copy through DRAM that drives may need.
    TaskId bring(std::uint32_t rank, std::size_t tier, const char* name, double bytes, const Tasks& after);
    TaskId take(std::uint32_t rank, std::size_t tier, const char* name, double bytes, const Tasks& after);
    /// The pass after which fetching for the next one begins.
    [[nodiscard]] Tasks window(std::uint32_t rank) const;
    TaskId accumulate(std::uint32_t rank, std::size_t tier, double bytes, TaskId stored);
    void add_updates();
    void update(std::uint32_t rank, std::uint32_t unit, double weights);
    [[nodiscard]] std::vector<NodeMemory::Traffic> update_traffic(std::uint32_t rank) const;

    const NodeMemories* memory_;
    std::vector<double> shares_;
    TaskLists fetched_;                                 ///< by rank
    TaskLists kept_;                                    ///< by rank: activation stores of the micro-batch, by unit
    std::vector<std::vector<Tasks>> arrived_;           ///< by rank and unit: the last gradients with the host
    TaskLists updates_;                                 ///< by rank, in order
    TaskLists ends_;                                    ///< by rank: what the end of the step waits for
    std::map<std::array<std::size_t, 3>, Step> steps_;  ///< by rank, tier and stream
    std::vector<std::uint32_t> update_demands_;         ///< by rank
    TaskId norm_;
};

}  // namespace orrery::training
