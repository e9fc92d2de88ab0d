#pragma once
// The fabric: every link of a cluster, and the path between any two GPUs by arithmetic.
//
// Claims: paths are shortest paths of the graph of links (checked against a breadth-first search in the tests),
// found in constant time without stored routes, so 16,384 GPUs build in milliseconds and in a few MiB.
// Scope: nodes with GPUs joined by a switch (NVSwitch), a full mesh (xGMI) or PCIe, NICs on PCIe; leaf-spine and
// three-level fat tree between nodes, with rails. A path's hops inside the fabric are one of:
//   spray  evenly over all parallel paths: the bundle of parallel links is one resource with their summed capacity
//   ecmp   a hash of the flow picks one path: single links are resources, and collisions happen
// Limits: no link failures yet (capacities are constants), no adaptive choice (packet fidelity brings both).

#include "sim/base/id.hpp"
#include "sim/base/quantity.hpp"
#include "sim/base/time.hpp"
#include "sim/engine/resource_model.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery {

enum class IntraKind { nvswitch, mesh, pcie };
enum class FabricKind { leaf_spine, fat_tree };
enum class PathChoice { spray, ecmp };

/// Everything the fabric is computed from. Plain numbers in base units; builders in topologies/ fill it from presets.
struct FabricShape {
    std::uint32_t nodes = 1;
    std::uint32_t gpus_per_node = 8;
    std::uint32_t nics_per_node = 8;
    IntraKind intra = IntraKind::nvswitch;
    double intra_bandwidth = 0;  ///< B/s per GPU and direction (nvswitch, pcie), or a pair and direction (mesh)
    double intra_latency = 0;    ///< s, GPU to GPU inside a node
    double pcie_bandwidth = 0;   ///< B/s per GPU and direction between GPU and NIC; 0: not limiting
    double nic_bandwidth = 0;    ///< B/s and direction
    double nic_latency = 0;      ///< s, through both NICs and the host
    FabricKind kind = FabricKind::leaf_spine;
    std::uint32_t nodes_per_leaf = 16;
    std::uint32_t rails = 1;                ///< leaf switches that the NICs of a node spread over
    std::uint32_t spines = 1;               ///< per pod in a fat tree, in total in a leaf-spine fabric
    std::uint32_t leaf_groups_per_pod = 1;  ///< fat tree: groups of nodes under one pod
    std::uint32_t cores_per_spine = 1;      ///< fat tree: core switches that each pod's spine reaches
    double leaf_oversubscription = 1;       ///< bandwidth of a leaf's hosts over that of its uplinks
    double spine_oversubscription = 1;      ///< fat tree: of a pod's spines towards the cores
    double link_latency = 0;                ///< s per link, switch included
};

/// A path: the resources a flow uses, in order, and its latency without load.
struct Route {
    static constexpr std::size_t kMaxLinks = 12;
    std::array<ResourceId, kMaxLinks> links;
    std::uint32_t count = 0;
    double latency = 0;  ///< s
    [[nodiscard]] std::span<const ResourceId> resources() const { return {links.data(), count}; }
};

/// The links of a tree that joins GPUs of different nodes through one spine (and core switch), both directions of each.
struct TreeLinks {
    std::vector<ResourceId> links;
    double latency = 0;  ///< s, from a member to the root and back down
};

/// What a vertex of the graph of links is.
enum class VertexKind { gpu, node_switch, nic, leaf, spine, core };

class Fabric {
  public:
    /// Throws InfeasibleError when the shape has no path between some pair of GPUs.
    explicit Fabric(const FabricShape& shape);

    [[nodiscard]] const FabricShape& shape() const { return shape_; }
    [[nodiscard]] std::uint32_t gpus() const { return shape_.nodes * shape_.gpus_per_node; }
    [[nodiscard]] std::uint32_t node_of(GpuId gpu) const { return gpu.value() / shape_.gpus_per_node; }
    [[nodiscard]] std::uint32_t nic_of(GpuId gpu) const;
    [[nodiscard]] std::uint32_t leaf_of_nic(std::uint32_t nic) const;
    [[nodiscard]] std::uint32_t pod_of_leaf(std::uint32_t leaf) const;
    /// B/s of one link between a leaf and a spine, and (fat tree) between a spine and a core switch.
    [[nodiscard]] double leaf_link_rate() const { return capacities_[leaf_up_]; }
    [[nodiscard]] double core_link_rate() const { return cores_ > 0 ? capacities_[spine_up_] : 0; }

    /// Path from one GPU to another (different) GPU. `hash` picks among equal paths for PathChoice::ecmp.
    [[nodiscard]] Route route(GpuId from, GpuId to, PathChoice choice, std::uint64_t hash) const;

    /// The tree of an all-reduce inside the switches. `number` picks the root among spines and cores; with PathChoice::spray
    /// its links count against the bundles they are part of as well. Members have NICs of their own.
    [[nodiscard]] TreeLinks tree(std::span<const GpuId> members, PathChoice choice, std::uint32_t number) const;

    /// All resources: single links first, then the bundles that `spray` uses. Index = resource id.
    [[nodiscard]] std::size_t resource_count() const { return capacities_.size(); }
    [[nodiscard]] double capacity(ResourceId resource) const { return capacities_[resource.value()]; }
    [[nodiscard]] std::string resource_name(ResourceId resource) const;
    /// True for links inside a node, PCIe to the NIC included.
    [[nodiscard]] bool inside_node(ResourceId resource) const { return resource.value() < nic_out_; }
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
    [[nodiscard]] std::uint32_t leaves() const { return leaves_; }
    [[nodiscard]] std::uint32_t spines() const { return spines_; }
    [[nodiscard]] std::uint32_t cores() const { return cores_; }

  private:
    [[nodiscard]] std::uint32_t reserve(std::size_t count, double capacity);
    [[nodiscard]] bool same_pod(std::uint32_t leaf_a, std::uint32_t leaf_b) const;
    [[nodiscard]] std::uint32_t mesh_link(GpuId from, GpuId to) const;

    FabricShape shape_;
    std::vector<double> capacities_;
    std::uint32_t leaves_ = 0;
    std::uint32_t pods_ = 1;
    std::uint32_t spines_ = 0;
    std::uint32_t cores_ = 0;
    // First resource of each table of links.
    std::uint32_t intra_up_ = 0, intra_down_ = 0, mesh_ = 0, pcie_up_ = 0, pcie_down_ = 0, nic_out_ = 0, nic_in_ = 0;
    std::uint32_t leaf_up_ = 0, leaf_down_ = 0, spine_up_ = 0, spine_down_ = 0;
    std::uint32_t leaf_up_bundle_ = 0, leaf_down_bundle_ = 0, pod_up_bundle_ = 0, pod_down_bundle_ = 0;
};

}  // namespace orrery
