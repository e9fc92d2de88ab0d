#pragma once
// The same collective in several groups at once, as a price: the library's latency, and what the most loaded link takes.
//
// Claims: all groups start together and move in step, as the ranks of a parallel program do, so links that several groups cross carry
// all of them. What a group sends follows the fabric's own routes. In an all-to-all every member sends to every other; other
// collectives go round in rings, node by node. Where no link between switches can be full before the NICs are (a fabric with full
// bisection whose paths are sprayed) the ports say it all: groups on other nodes are left out, and an all-to-all is counted by its
// ports.
// Equal to `kind: collective` of the same groups and sizes at analytic and fluid fidelity, where all links are ideal.
// Limits: other traffic on the fabric is not seen; capacities are those of the fabric as it was built.
// Validated by tests/workloads/fabric_exchanges_test.cpp.

#include "sim/network/collective.hpp"

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace orrery::network {

class ConcurrentGroups {
  public:
    using Group = std::vector<GpuId>;
    ConcurrentGroups() = default;
    /// Groups of the same size, each in ring order, node by node; the first is the one that the library's price is of. `fabric`
    /// outlives them.
    ConcurrentGroups(const Fabric& fabric, PathChoice paths, std::vector<Group> groups);

    /// Ranks of a group.
    [[nodiscard]] std::size_t size() const { return groups_.empty() ? 0 : groups_[0].size(); }
    /// The ranks at equal places on their nodes, of each group: as many groups as a node holds ranks of one.
    [[nodiscard]] ConcurrentGroups rails() const;
    /// The ranks of a group on one node, of each.
    [[nodiscard]] ConcurrentGroups node_parts() const;

    /// Of the collective, in all groups; 0 for groups of one rank and for no bytes. `payload`: as wire_bytes() takes it. Throws
    /// InfeasibleError when nodes hold different numbers of a group's ranks.
    [[nodiscard]] Seconds seconds(const CollectiveModel& model, CollectiveOp op, Bytes payload) const;

  private:
    /// Seconds that a link takes for a byte of the collective's amount, of what goes inside nodes and between them.
    struct Load {
        double inside = 0;
        double outside = 0;
    };
    /// What the links take: those of which no other link takes more of both.
    struct Traffic {
        std::vector<Load> most;
        GroupPorts ports;
        Seconds propagation;
    };
    [[nodiscard]] Traffic traffic(bool pairs) const;

    const Fabric* fabric_ = nullptr;
    PathChoice paths_ = PathChoice::spray;
    std::vector<Group> groups_;
    /// Of rings and of pairs, once they are asked for.
    mutable std::array<std::shared_ptr<const Traffic>, 2> known_;
};

/// Whether links between switches can be full before the NICs are, so that groups on other nodes matter.
[[nodiscard]] bool switch_links_matter(const Fabric& fabric, PathChoice paths);

}  // namespace orrery::network
