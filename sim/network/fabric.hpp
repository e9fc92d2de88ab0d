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
#include "sim/network/topology/topology.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace orrery::inline network {

class TreeTopology;

enum class IntraKind { nvswitch, mesh, pcie };
enum class FabricKind { leaf_spine, fat_tree };

/// Equal nodes, side by side, of a cluster whose nodes are not all equal. Base units.
struct NodeGroup {
    std::string name;
    std::uint32_t first = 0;  ///< number of its first node
    std::uint32_t nodes = 0;
    std::uint32_t nics = 0;  ///< of a node, from its first one on
    IntraKind intra = IntraKind::nvswitch;
    double intra_bandwidth = 0;
    double intra_latency = 0;
    double pcie_bandwidth = 0;
    double nic_bandwidth = 0;
    double nic_latency = 0;
    double package_bandwidth = 0;  ///< mesh: between GPUs 2k and 2k + 1; 0: as between any two
};

/// Everything the fabric is computed from. Plain numbers in base units; the `cluster` section fills it.
struct FabricShape {
    std::uint32_t nodes = 1;
    std::uint32_t gpus_per_node = 8;
    std::uint32_t nics_per_node = 8;     ///< the most of any node
    std::uint32_t nodes_per_domain = 1;  ///< neighbours whose GPUs one NVSwitch fabric joins
    /// Every node is of one of them, in order; empty: all nodes are as the fields below say, which else hold the fastest.
    std::vector<NodeGroup> groups = {};
    /// B/s of a further NIC of every node, its last, which alone reaches other groups; 0: one fabric joins all.
    double outer_bandwidth = 0;
    IntraKind intra = IntraKind::nvswitch;
    double intra_bandwidth = 0;    ///< B/s per GPU and direction (nvswitch, pcie), or a pair and direction (mesh)
    double intra_latency = 0;      ///< s, GPU to GPU inside a node
    double package_bandwidth = 0;  ///< B/s between GPUs 2k and 2k + 1 of a mesh, a direction; 0: as between any two
    double pcie_bandwidth = 0;     ///< B/s per GPU and direction between GPU and NIC; 0: not limiting
    double nic_bandwidth = 0;      ///< B/s and direction
    double nic_latency = 0;        ///< s, through both NICs and the host
    double link_latency = 0;       ///< s per link, switch included
    /// What joins the NICs; null: the tree of the fields below.
    std::function<std::shared_ptr<const Topology>(const FabricShape&)> topology;
    FabricKind kind = FabricKind::leaf_spine;
    std::uint32_t nodes_per_leaf = 16;
    std::uint32_t rails = 1;                ///< leaf switches that the NICs of a node spread over
    std::uint32_t spines = 1;               ///< per pod in a fat tree, in total in a leaf-spine fabric
    std::uint32_t leaf_groups_per_pod = 1;  ///< fat tree: groups of nodes under one pod
    std::uint32_t cores_per_spine = 1;      ///< fat tree: core switches that each pod's spine reaches
    std::uint64_t hash_salt = 0;            ///< of the switches, added to what a hashed path goes by; see hash_salt()
    double leaf_oversubscription = 1;       ///< bandwidth of a leaf's hosts over that of its uplinks
    double spine_oversubscription = 1;      ///< fat tree: of a pod's spines towards the cores

    [[nodiscard]] std::uint32_t nics() const { return nodes * nics_per_node; }
};

/// Other seeds, other paths; seed 1 adds nothing.
[[nodiscard]] constexpr std::uint64_t hash_salt(std::uint64_t seed) {
    return (seed - 1) * 0x9E3779B97F4A7C15ULL;
}

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

}  // namespace orrery::inline network
