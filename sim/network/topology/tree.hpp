#pragma once
// Leaf-spine and three-level fat tree with rails: paths up to a spine (and a core switch) and down again.
//
// Parallel links between the same levels are equal, so that a sprayed flow sees one bundle with their summed capacity.

#include "sim/network/topology/routed.hpp"

namespace orrery::network {

class TreeTopology final : public Topology {
  public:
    /// Throws InfeasibleError when there are too many links.
    explicit TreeTopology(const FabricShape& shape);

    [[nodiscard]] std::string resource_name(std::uint32_t resource) const override;
    [[nodiscard]] std::uint32_t switches() const override { return leaves_ + spines_ + cores_; }
    [[nodiscard]] VertexKind switch_kind(std::uint32_t number) const override;
    [[nodiscard]] std::string switch_name(std::uint32_t number) const override;
    [[nodiscard]] std::uint32_t switch_of(std::uint32_t nic) const override { return leaf_of_nic(nic); }
    [[nodiscard]] double host_latency() const override { return latency_; }
    [[nodiscard]] std::vector<SwitchLink> links() const override;
    void route(Route& route, std::uint32_t first, std::uint32_t from_nic, std::uint32_t to_nic, PathChoice choice,
               std::uint64_t hash) const override;
    [[nodiscard]] bool full_bisection() const override;
    [[nodiscard]] std::string summary() const override;

    /// Links over which a switch sends towards a leaf. Precondition: another switch.
    [[nodiscard]] LinkSet next_links(std::uint32_t at, std::uint32_t leaf) const;

    /// Bundles that have at least the rate of all NICs behind them, whose `nics` send at most so many B/s each, by number: what
    /// is sprayed over them fills the NICs first.
    [[nodiscard]] std::vector<std::uint32_t> ample_bundles(std::span<const double> nics) const;

    [[nodiscard]] std::uint32_t leaf_of_nic(std::uint32_t nic) const;
    [[nodiscard]] std::uint32_t pod_of_leaf(std::uint32_t leaf) const;
    [[nodiscard]] std::uint32_t leaves() const { return leaves_; }
    [[nodiscard]] std::uint32_t spines() const { return spines_; }
    [[nodiscard]] std::uint32_t cores() const { return cores_; }
    /// B/s of one link between a leaf and a spine, of the fastest where leaves differ, and (fat tree) between a spine and a core
    /// switch.
    [[nodiscard]] double leaf_link_rate() const { return leaf_link_rate_; }
    [[nodiscard]] double core_link_rate() const { return cores_ > 0 ? capacities_[spine_up_] : 0; }

    /// Adds the links of the tree that joins these NICs through the root of this number; returns the links of the longest
    /// path through it.
    [[nodiscard]] std::uint32_t add_tree(std::vector<ResourceId>& out, std::uint32_t first,
                                         std::span<const std::uint32_t> nics, PathChoice choice,
                                         std::uint32_t number) const;

  private:
    [[nodiscard]] std::uint32_t reserve(std::size_t count, double capacity);
    /// So many resources for each leaf: of its bandwidth towards its hosts, this share.
    [[nodiscard]] std::uint32_t reserve_leaves(const std::vector<double>& bandwidths, std::uint32_t each);

    // Of the shape.
    bool fat_;
    std::uint32_t nics_per_node_, nodes_per_leaf_, rails_, leaf_groups_per_pod_, spines_per_pod_, cores_per_spine_;
    double leaf_oversubscription_, spine_oversubscription_, latency_;

    double leaf_link_rate_ = 0;
    std::uint32_t leaves_ = 0;
    std::uint32_t pods_ = 1;
    std::uint32_t spines_ = 0;
    std::uint32_t cores_ = 0;
    // First resource of each table of links.
    std::uint32_t leaf_up_ = 0, leaf_down_ = 0, spine_up_ = 0, spine_down_ = 0;
    std::uint32_t leaf_up_bundle_ = 0, leaf_down_bundle_ = 0, pod_up_bundle_ = 0, pod_down_bundle_ = 0;
};

}  // namespace orrery::network
