#pragma once
// A training iteration as a task graph at stage granularity: passes, sends, gradient reductions, optimizer.
//
// Claims: every rank runs its stage's schedule in order; a pass waits for its input to arrive; sends, reductions
// and gathers are activities on the fabric and contend there. With ZeRO-2/3 and no pipeline the granularity is a
// layer, because its gathers and reductions hide behind the layers before and after.
// Folding: data-parallel replicas that own whole nodes do the same at the same time, when the fabric has full
// bisection; one set of nodes (`block` replicas) then stands for all. Of the ranks of a stage that are left, tensor-parallel
// ones and replicas on the same nodes, one stands for all where rank_folding.hpp proves that they do the same. A folded run
// gives the same times as the unfolded one.
// Ranks on nodes of other groups have prices of their own, by the device and the links of their group; collectives over groups
// take the measured curves of the group that makes them slowest.
// Limits: stragglers are given by rank (`slow`), in the first sets of replicas where the run is folded; the
// tensor-parallel group's collectives are inside a pass's price.
// Sources: Narayanan et al., SC21; Rajbhandari et al., "ZeRO", SC20; Zhao et al., "PyTorch FSDP", VLDB 2023.
// Validated by tests/workloads/training_test.cpp (bubble closed forms, folded = unfolded) and `orrery validate
// training`.

#include "sim/engine/slow_spells.hpp"
#include "sim/network/node_memory.hpp"
#include "sim/network/placement.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/memory/memory.hpp"
#include "workloads/training/passes/pass_cost.hpp"
#include "workloads/training/plan/rank_map.hpp"

#include <memory>

namespace orrery::training {

/// A rank whose kernels take longer, and with them those of all ranks that share its micro-batches and layers.
struct SlowRank {
    std::uint32_t rank;
    double factor;  ///< share of the speed that is left
};

/// What the nodes of a group of a mixed cluster are priced by. All outlive the lowering.
struct GroupDevice {
    const CostModel* device;
    const DeviceSpec* gpu;
    const CollectiveModel* collectives;
    const NodeHost* host = nullptr;  ///< null where nodes have none
};

/// Everything that decides an iteration's time. References must outlive the lowering.
struct TrainingInput {
    const ModelSpec& model;
    const PlanSpec& plan;
    const SoftwareSpec& software;
    const CostModel& device;
    const DeviceSpec& gpu;
    const Fabric& fabric;
    const CollectiveModel& collectives;
    Placement placement;
    PathChoice paths = PathChoice::spray;
    bool fold = true;
    bool routes_flows = false;  ///< the sharing model sends flows itself: their paths' latency is not added
    std::vector<SlowRank> slow = {};
    std::vector<SlowSpell> spells = {};  ///< in the time of the iteration
    /// Sets of replicas, from the first, that are not like the others: folding simulates them beside the one that stands for all.
    std::uint32_t unlike = 0;
    /// By group of the fabric; empty: all nodes are alike.
    std::vector<GroupDevice> groups = {};
    /// Memories beside those of the devices, of the first rank's node; null where the plan keeps nothing in them.
    const NodeHost* host = nullptr;
    /// The documents of a step; null where the plan says nothing of them.
    std::shared_ptr<const DocumentLayout> documents = nullptr;
    bool keep_flows =
        false;  ///< transfers keep their flows between nodes for whoever asks; those of routes_flows do anyway
    bool in_order = false;  ///< transfers take a link that they share one after another, and not each a part of it

    /// The same of any GPU's node.
    [[nodiscard]] const NodeHost* host_of(GpuId of) const {
        return groups.empty() ? host : groups[fabric.group_of(of)].host;
    }
    /// The first GPU of the ranks of a stage's replica, which are all in one group.
    [[nodiscard]] GpuId first_gpu(std::int64_t stage, std::int64_t replica) const {
        return placement.gpu(
            RankMap(plan).rank({static_cast<std::uint32_t>(stage), static_cast<std::uint32_t>(replica), 0}));
    }
    [[nodiscard]] PricedReplica priced(std::uint32_t stage = 0, std::uint32_t replica = 0) const {
        return {placement, stage, replica};
    }
    /// Bytes that each rank of a stage has: of the device with the least that holds some of them.
    [[nodiscard]] double memory_of_stage(std::int64_t stage) const;
};

/// What a task of an iteration works on, for whoever draws it; -1: not on one of these.
struct TaskLabel {
    std::int32_t micro_batch = -1;
    std::int32_t chunk = -1;  ///< of its stage, where a stage has several
    std::int32_t layer = -1;  ///< the first one
    std::uint32_t layers = 0;
    // Of passes:
    bool pass = false;
    PassWork work = PassWork::forward;
    bool embedding = false;     ///< with the table at the front of the model
    bool head = false;          ///< with the output layer
    bool boundary = false;      ///< with the gather that completes a scattered input
    std::uint32_t encoder = 0;  ///< with so many layers of the encoder before them
    bool projector = false;     ///< with the rest of it: patches and projector
    friend bool operator==(const TaskLabel&, const TaskLabel&) = default;
};

/// A lowered iteration.
struct TrainingGraph {
    TaskGraph graph;
    std::uint32_t stages = 1;
    std::uint32_t ranks_per_stage = 1;         ///< simulated ones
    std::uint32_t folded_into_one = 1;         ///< ranks that each simulated rank stands for
    std::vector<std::uint32_t> ranks;          ///< simulated ranks, global numbers, stage by stage
    std::vector<std::vector<TaskId>> compute;  ///< by rank of which the graph has copies: its compute stream, in order
    std::vector<Price> prices;                 ///< composition of compute tasks
    std::vector<std::uint32_t> price_at;       ///< by task of which there are copies: index in prices, or kNoPrice
    static constexpr std::uint32_t kNoPrice = 0xFFFFFFFFU;
    /// Index in prices of a task; kNoPrice: it is on no compute stream.
    [[nodiscard]] std::uint32_t price_of(TaskId id) const {
        const std::uint32_t task = graph.original(id).value();
        return task < price_at.size() ? price_at[task] : kNoPrice;
    }
    /// The tasks of the compute stream of ranks[rank], in order.
    [[nodiscard]] std::vector<TaskId> stream(std::size_t rank) const;
    std::vector<TaskLabel> labels;     ///< by Task::label; the first one says nothing
    std::vector<RankWeights> weights;  ///< of a rank of each stage
    /// Micro-batches whose activations each stage holds at its peak, where the order was searched for; else empty.
    std::vector<double> held;
    double hardware_flops = 0;  ///< of one simulated stage set, recomputation included, per GPU on average
};

/// Replicas in the smallest set that can stand for all others, as it shares nodes with nobody; all of them: nothing folds.
[[nodiscard]] std::uint32_t folding_set(const TrainingInput& input);

class NodeMemories;
/// `memory`: of the nodes, in a run, where the plan offloads.
[[nodiscard]] TrainingGraph lower(const TrainingInput& input, const NodeMemories* memory = nullptr);

}  // namespace orrery::training
