#pragma once
// Several fabrics in one cluster: each group of nodes has its own, and a further one joins a NIC of every node.
//
// Claims: a flow inside a group takes the paths of the group's fabric, as if it were alone; a flow between groups takes those of
// the fabric that joins all. The fabrics share nothing but the nodes.
// Limits: no adaptive routing. At fidelity packet all NICs have the longest of the latencies of their links.
// Validated by tests/sim/network/mixed_test.cpp.

#include "sim/network/topology/routed.hpp"

namespace orrery::network {

class TreeTopology;

class JoinedFabrics final : public RoutedTopology {
  public:
    /// `fabrics`: of each group of the shape, and last the one that joins all, whose nodes have one NIC each. All complete.
    JoinedFabrics(const FabricShape& shape, const std::vector<FabricShape>& fabrics);

    [[nodiscard]] std::uint32_t switches() const override { return switches_; }
    [[nodiscard]] VertexKind switch_kind(std::uint32_t number) const override;
    [[nodiscard]] std::string switch_name(std::uint32_t number) const override;
    [[nodiscard]] std::string resource_name(std::uint32_t resource) const override;
    [[nodiscard]] std::uint32_t switch_of(std::uint32_t nic) const override;
    [[nodiscard]] bool joined(std::uint32_t nic, std::uint32_t other) const override;
    [[nodiscard]] LinkSet next_links(std::uint32_t at, std::uint32_t to, std::uint32_t entropy) const override;
    void route(Route& route, std::uint32_t first, std::uint32_t from_nic, std::uint32_t to_nic, PathChoice choice,
               std::uint64_t hash) const override;
    [[nodiscard]] Reach reach() const override;
    [[nodiscard]] bool full_bisection() const override;
    [[nodiscard]] std::string summary() const override;

    /// Those of all trees among the fabrics (TreeTopology::ample_bundles).
    [[nodiscard]] std::vector<std::uint32_t> ample_bundles(std::span<const double> nics) const;

  private:
    struct Part {
        std::string name;
        std::shared_ptr<const Topology> topology;
        const RoutedTopology* routed = nullptr;  ///< the same; null: a tree
        const TreeTopology* tree = nullptr;
        std::uint32_t first_node = 0;
        std::uint32_t nics = 0;  ///< of a node
        std::uint32_t first_switch = 0;
        std::uint32_t first_link = 0;
    };
    struct Place {
        const Part* part;
        std::uint32_t nic;  ///< in it
    };
    [[nodiscard]] Place place_of(std::uint32_t nic) const;
    [[nodiscard]] const Part& part_of_switch(std::uint32_t number) const;

    std::uint32_t nics_per_node_;
    std::uint32_t switches_ = 0;
    std::vector<Part> parts_;  ///< of the groups, then the one that joins all
};

}  // namespace orrery::network
