#pragma once
// The fabric: every link of a cluster, and the path between any two GPUs by arithmetic.
//
// Claims: paths are shortest paths of the graph of links (checked against a breadth-first search in the tests),
// found in constant time without stored routes, so 16,384 GPUs build in milliseconds and in a few MiB.
// Scope: nodes with GPUs joined by a switch (NVSwitch), a full mesh (xGMI) or PCIe, NICs on PCIe; between the NICs a topology
// (sim/network/topology). Nodes may be of several groups with parts of their own, and some nodes may share one NVSwitch fabric.
// A path's hops between the NICs are one of:
//   spray  evenly over all parallel paths: in a tree the bundle of parallel links is one resource with their summed capacity,
//          elsewhere each link carries its share
//   ecmp   a hash of the flow picks one path: single links are resources, and collisions happen
// Limits: no link failures yet (capacities are constants), no adaptive choice (packet fidelity brings both).

#include "sim/base/quantity.hpp"
#include "sim/engine/resource_model.hpp"
#include "sim/network/topology/shape.hpp"
#include "sim/network/topology/topology.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace orrery::network {

class TreeTopology;

/// The links of a tree that joins GPUs of different nodes through one spine (and core switch), both directions of each.
struct TreeLinks {
    std::vector<ResourceId> links;
    double latency = 0;  ///< s, from a member to the root and back down
};

class Fabric {
  public:
    /// Throws InfeasibleError when the shape has no path between some pair of GPUs.
    explicit Fabric(const FabricShape& shape);

    [[nodiscard]] const FabricShape& shape() const { return shape_; }
    [[nodiscard]] std::uint32_t gpus() const { return shape_.nodes * shape_.gpus_per_node; }
    [[nodiscard]] std::uint32_t node_of(GpuId gpu) const { return gpu.value() / shape_.gpus_per_node; }
    /// Nodes that one NVSwitch fabric joins, as a number; a node alone where there is none between nodes.
    [[nodiscard]] std::uint32_t domain_of(GpuId gpu) const { return gpu.value() / gpus_per_domain(); }
    [[nodiscard]] std::uint32_t gpus_per_domain() const { return shape_.gpus_per_node * shape_.nodes_per_domain; }
    /// Place of the group of a GPU's node among shape().groups; 0 where all nodes are alike.
    [[nodiscard]] std::uint32_t group_of(GpuId gpu) const {
        return groups_.size() == 1 ? 0 : group_of_node(node_of(gpu));
    }
    [[nodiscard]] std::uint32_t group_of_node(std::uint32_t node) const;
    /// What the node of a GPU is made of.
    [[nodiscard]] const NodeGroup& parts_of(GpuId gpu) const { return groups_[group_of(gpu)]; }
    /// The NIC that a GPU uses to reach others of its group.
    [[nodiscard]] std::uint32_t nic_of(GpuId gpu) const;
    /// How data leave a node for another: from which GPU, out of which NIC and into which. Another GPU of the node where the own
    /// NIC does not reach that of the receiver (rail-only).
    struct Crossing {
        GpuId leaving;
        std::uint32_t out;
        std::uint32_t in;
    };
    /// Precondition: different nodes.
    [[nodiscard]] Crossing crossing(GpuId from, GpuId to) const;
    /// What joins the NICs; its resources follow those of the NICs.
    [[nodiscard]] const Topology& topology() const { return *topology_; }
    /// The same as a tree; null when it is none.
    [[nodiscard]] const TreeTopology* as_tree() const { return tree_; }
    /// Switches of a tree; none elsewhere.
    [[nodiscard]] std::uint32_t leaves() const;
    [[nodiscard]] std::uint32_t spines() const;
    [[nodiscard]] std::uint32_t cores() const;
    /// B/s of one link between a spine and a core switch of a fat tree.
    [[nodiscard]] double core_link_rate() const;

    /// Path from one GPU to another (different) GPU. `hash` picks among equal paths for PathChoice::ecmp.
    [[nodiscard]] Route route(GpuId from, GpuId to, PathChoice choice, std::uint64_t hash) const;

    /// The tree of an all-reduce inside the switches. `number` picks the root among spines and cores; with PathChoice::spray
    /// its links count against the bundles they are part of as well. Members have NICs of their own. Throws InfeasibleError
    /// where the topology is no tree.
    [[nodiscard]] TreeLinks tree(std::span<const GpuId> members, PathChoice choice, std::uint32_t number) const;

    /// All resources: single links first, then the bundles that `spray` uses. Index = resource id.
    [[nodiscard]] std::size_t resource_count() const { return capacities_.size(); }
    [[nodiscard]] double capacity(ResourceId resource) const { return capacities_[resource.value()]; }
    [[nodiscard]] std::string resource_name(ResourceId resource) const;
    /// True for links inside a node, PCIe to the NIC included.
    [[nodiscard]] bool inside_node(ResourceId resource) const { return resource.value() < nic_out_; }
    /// Resource of the first link between switches.
    [[nodiscard]] std::uint32_t first_switch_link() const { return switch_links_; }
    /// Adds every resource to a sharing model, which must be empty, so that ids agree.
    void add_to(ResourceModel& sharing) const;

    /// Ports used by the collectives: GPU to the node's switch and back, NIC out and in.
    [[nodiscard]] ResourceId intra_up(GpuId gpu) const { return ResourceId(intra_up_ + gpu.value()); }
    [[nodiscard]] ResourceId intra_down(GpuId gpu) const { return ResourceId(intra_down_ + gpu.value()); }
    [[nodiscard]] ResourceId nic_out(std::uint32_t nic) const { return ResourceId(nic_out_ + nic); }
    [[nodiscard]] ResourceId nic_in(std::uint32_t nic) const { return ResourceId(nic_in_ + nic); }

    /// True when no switch link can bind before the NICs do: then equal nodes see equal shares wherever they are.
    [[nodiscard]] bool full_bisection() const;

    /// The graph of single links, for checks and pictures: vertices are numbered kind by kind.
    struct Link {
        std::uint32_t from;
        std::uint32_t to;
        ResourceId resource;
    };
    [[nodiscard]] std::vector<Link> links() const;
    [[nodiscard]] std::size_t vertex_count() const;
    [[nodiscard]] VertexKind vertex_kind(std::uint32_t vertex) const;

  private:
    /// So many resources of each node, of a capacity that its group decides.
    template <class Capacity>
    std::uint32_t reserve(std::size_t per_node, const Capacity& capacity);
    void require_paths() const;
    [[nodiscard]] std::uint32_t domains() const {
        return (shape_.nodes + shape_.nodes_per_domain - 1) / shape_.nodes_per_domain;
    }
    [[nodiscard]] std::uint32_t outer_nic(std::uint32_t node) const { return (node + 1) * shape_.nics_per_node - 1; }
    [[nodiscard]] std::uint32_t mesh_link(GpuId from, GpuId to) const;
    void add_inside(Route& route, GpuId from, GpuId to) const;

    FabricShape shape_;
    std::vector<NodeGroup> groups_;  ///< of the shape; of equal nodes one
    bool meshes_ = false;            ///< of some nodes
    bool pcie_limits_ = false;
    std::vector<double> capacities_;
    std::shared_ptr<const Topology> topology_;
    const TreeTopology* tree_ = nullptr;
    // First resource of each table of links.
    std::uint32_t intra_up_ = 0, intra_down_ = 0, mesh_ = 0, pcie_up_ = 0, pcie_down_ = 0, nic_out_ = 0, nic_in_ = 0;
    std::uint32_t switch_links_ = 0;
};

}  // namespace orrery::network
