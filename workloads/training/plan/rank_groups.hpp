#pragma once
// The groups of ranks that do the same collective at the same time, on the GPUs where they are.
//
// Claims: the ranks of a plan go through their passes together, so what one group does in a pass, the like groups of all replicas do
// as well; those of other stages count too where links between switches matter.
// Validated by tests/workloads/fabric_exchanges_test.cpp.

#include "sim/network/concurrent_groups.hpp"
#include "sim/network/placement.hpp"
#include "workloads/training/plan/rank_map.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orrery::training {

/// The replica of a stage that a price is of, and where the plan's ranks are.
struct PricedReplica {
    std::optional<Placement> placement = std::nullopt;  ///< without one: ranks are on the first GPUs, in order
    std::uint32_t stage = 0;
    std::uint32_t replica = 0;
};

class RankGroups {
  public:
    /// Ranks by their number in a replica or in a stage.
    using Members = std::vector<std::uint32_t>;

    RankGroups(const PlanSpec& plan, const Fabric& fabric, PathChoice paths, PricedReplica of = {})
        : map_(plan), fabric_(&fabric), paths_(paths), of_(std::move(of)) {}

    /// These groups of each replica, of which the first one of the priced replica is the one that is priced.
    [[nodiscard]] ConcurrentGroups of_replica(const std::vector<Members>& groups) const;
    /// The ranks of each replica in groups of `count` at this distance from each other: 1 for those that cut tensors, the
    /// number of those for ranks that cut sequences.
    [[nodiscard]] ConcurrentGroups every(std::int64_t distance, std::int64_t count) const;
    /// These groups of each stage, of which the first one of the priced stage is the one that is priced.
    [[nodiscard]] ConcurrentGroups of_stage(const std::vector<Members>& groups) const;
    [[nodiscard]] const PricedReplica& of() const { return of_; }
    [[nodiscard]] PathChoice paths() const { return paths_; }
    /// Number in its stage of the first rank of the priced replica.
    [[nodiscard]] std::uint32_t first_in_stage() const { return of_.replica * map_.per_replica(); }

  private:
    [[nodiscard]] GpuId gpu(std::uint32_t rank) const { return of_.placement ? of_.placement->gpu(rank) : GpuId(rank); }

    RankMap map_;
    const Fabric* fabric_;
    PathChoice paths_;
    PricedReplica of_;
};

}  // namespace orrery::training
