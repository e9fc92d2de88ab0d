#pragma once
// The order of a plan's ranks: tensor-parallel ranks are neighbours, then come context, data and pipeline parallelism.
//
// Claims: this is Megatron-LM's order (tp-cp-dp-pp), which everything here that numbers ranks follows; experts and what else shares
// ranks is cut out of it. Validated by tests/workloads/rank_map_test.cpp.

#include "sim/base/error.hpp"
#include "workloads/training/plan/spec.hpp"

#include <cstdint>
#include <limits>

namespace orrery::training {

class RankMap {
  public:
    /// Where a rank is in the plan.
    struct Place {
        std::uint32_t stage = 0;
        std::uint32_t replica = 0;  ///< of the stage
        std::uint32_t member = 0;   ///< of the replica: its tensor- and context-parallel ranks
        bool operator==(const Place&) const = default;
    };

    explicit RankMap(const PlanSpec& plan) : RankMap(plan.tensor, plan.context, plan.data, plan.pipeline) {}
    RankMap(std::int64_t tensor, std::int64_t context, std::int64_t replicas, std::int64_t stages)
        : tensor_(static_cast<std::uint32_t>(tensor)),
          context_(static_cast<std::uint32_t>(context)),
          replicas_(static_cast<std::uint32_t>(replicas)),
          stages_(static_cast<std::uint32_t>(stages)) {
        ORRERY_ASSERT(tensor > 0 && context > 0 && replicas > 0 && stages > 0);
        ORRERY_ASSERT(tensor * context * replicas * stages <= std::numeric_limits<std::uint32_t>::max());
    }

    /// Ranks that compute a micro-batch of a stage together: tensor x context.
    [[nodiscard]] std::uint32_t per_replica() const { return tensor_ * context_; }
    [[nodiscard]] std::uint32_t per_stage() const { return per_replica() * replicas_; }
    [[nodiscard]] std::uint32_t ranks() const { return per_stage() * stages_; }

    [[nodiscard]] std::uint32_t member(std::uint32_t context, std::uint32_t tensor) const {
        ORRERY_ASSERT(context < context_ && tensor < tensor_);
        return context * tensor_ + tensor;
    }
    [[nodiscard]] std::uint32_t rank(const Place& place) const {
        ORRERY_ASSERT(place.stage < stages_ && place.replica < replicas_ && place.member < per_replica());
        return (place.stage * replicas_ + place.replica) * per_replica() + place.member;
    }
    [[nodiscard]] Place place(std::uint32_t rank) const {
        ORRERY_ASSERT(rank < ranks());
        return {rank / per_stage(), rank / per_replica() % replicas_, rank % per_replica()};
    }
    /// The same with another number of replicas, such as those that are simulated.
    [[nodiscard]] RankMap with_replicas(std::uint32_t replicas) const { return {tensor_, context_, replicas, stages_}; }
    /// The same with stages and replicas exchanged: the stages of a replica are neighbours.
    [[nodiscard]] RankMap replica_by_replica() const { return {tensor_, context_, stages_, replicas_}; }

  private:
    std::uint32_t tensor_, context_, replicas_, stages_;
};

}  // namespace orrery::training
