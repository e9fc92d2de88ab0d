#pragma once
// Where the replicas of a serving pool begin among the GPUs of a job.

#include "workloads/serving/spec.hpp"

#include <cstdint>

namespace orrery::driver {

/// The first GPU of a pool where those before `next` are taken: a replica that fits into a node, or fills several, does not begin inside
/// one.
[[nodiscard]] inline std::uint32_t pool_begin(const PhaseSpec& phase, std::uint32_t next, std::uint32_t per_node) {
    const auto ranks = static_cast<std::uint32_t>(phase.ranks());
    const auto stage = static_cast<std::uint32_t>(phase.stage_ranks());
    const std::uint32_t unit = ranks % per_node == 0   ? per_node
                               : per_node % ranks == 0 ? ranks
                               : per_node % stage == 0 ? stage
                                                       : 1;
    return (next + unit - 1) / unit * unit;
}

}  // namespace orrery::driver
