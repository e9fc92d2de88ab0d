#pragma once
// The memories of the nodes that a job's ranks are on: of each group of nodes its own tiers, links and cores.
//
// Claims: a rank copies to and from the tiers of its own node, which the ranks of that node share and nobody else uses.
// Validated by tests/workloads/mixed_offload_test.cpp.

#include "workloads/training/lowering/lower.hpp"
#include "workloads/training/lowering/tiers.hpp"

namespace orrery::training {

class NodeMemories {
  public:
    /// Adds the resources of the groups that hold ranks to `model`, which has those of the fabric. The plan offloads.
    NodeMemories(const TrainingInput& input, ResourceModel& model);

    [[nodiscard]] const NodeMemory& of(GpuId gpu) const { return *by_group_[fabric_.group_of(gpu)]; }
    [[nodiscard]] bool has(ResourceId resource) const { return holding(resource) != nullptr; }
    /// Precondition: has(resource).
    [[nodiscard]] double capacity(ResourceId resource) const { return holding(resource)->capacity(resource); }
    [[nodiscard]] std::string resource_name(ResourceId resource) const {
        return holding(resource)->resource_name(resource);
    }

  private:
    [[nodiscard]] const NodeMemory* holding(ResourceId resource) const;

    const Fabric& fabric_;
    std::vector<std::unique_ptr<NodeMemory>> by_group_;  ///< null for groups without ranks
};

/// What ranks place in the tiers of a node of one kind: of the node that has most of them.
struct HostUse {
    std::string group;  ///< empty where all nodes are alike
    const NodeHost* host;
    double device_link;  ///< B/s of a device's PCIe link
    double ranks;        ///< of the node
    std::vector<TierUse> tiers;
};
/// Of each group that holds ranks, in the order of groups. The plan offloads, and its tiers are there.
[[nodiscard]] std::vector<HostUse> host_uses(const TrainingInput& input);
/// No tier is too small.
[[nodiscard]] bool fits(const std::vector<HostUse>& hosts);

}  // namespace orrery::training
