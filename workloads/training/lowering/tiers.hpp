#pragma once
// What offloading (features/offload.hpp) places in the memories of a node.
//
// Claims: a node's tier holds the shares of all its ranks: 12 B of states a weight, gradients in their precision, weights in 16 bits,
// and the activations that a layer keeps.

#include "sim/device/memory_tier.hpp"
#include "workloads/training/memory/memory.hpp"

#include <utility>

namespace orrery::training {

/// What nodes of a kind have beside their devices.
struct HostOf {
    std::string group;  ///< of a mixed cluster; else empty
    const NodeHost* host;
};
/// Checks the plan's tiers against those of the nodes that its ranks are on. Throws ConfigError (at `mark`) for a tier that no node
/// has, with the nearest, and InfeasibleError for a node without any or a group without one that others have.
void check_tiers(const PlanSpec& plan, const std::vector<HostOf>& hosts, const Mark& mark);

/// Bytes that a layer keeps of a micro-batch on a rank.
[[nodiscard]] double layer_activations(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software);

/// Bytes that `ranks` of a node place in each tier that the plan names, and of what.
struct TierUse {
    std::size_t tier;
    double optimizer = 0;
    double gradients = 0;
    double parameters = 0;
    double activations = 0;
    [[nodiscard]] double total() const { return optimizer + gradients + parameters + activations; }
};
[[nodiscard]] std::vector<TierUse> tier_use(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software,
                                            const NodeHost& host, double ranks);
struct HostUse;
/// Throws InfeasibleError that names the tiers which are too small, with what would be in them.
void require_tiers(const std::vector<HostUse>& hosts);

}  // namespace orrery::training
