#pragma once
// What a fabric is computed from.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace orrery::network {

class Topology;

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

}  // namespace orrery::network
