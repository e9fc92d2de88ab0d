#pragma once
// The `cluster` section of a scenario: nodes, what is in a node, and the fabric between them.
//
// Node presets live in topologies/data/nodes. Source of each constant is in the preset.

#include "sim/device/device_spec.hpp"
#include "sim/device/memory_tier.hpp"
#include "sim/network/fabric.hpp"

namespace orrery::topologies {

struct NodeSpec {
    std::string name;
    std::int64_t gpus = 8;
    DeviceSpec gpu;
    IntraKind intra = IntraKind::nvswitch;
    Sourced<double> intra_bandwidth;  ///< B/s per GPU and direction, or a pair in a mesh
    Sourced<double> intra_latency;    ///< s
    std::int64_t nics = 8;
    Sourced<double> nic_bandwidth;        ///< B/s and direction
    Sourced<double> nic_latency;          ///< s
    Sourced<double> pcie_bandwidth;       ///< B/s per GPU and direction; absent: not limiting
    Sourced<double> package_bandwidth;    ///< B/s between the two dies of a package, a direction; mesh only
    std::string collectives = "nvlink3";  ///< generation of the table of measured collectives
    std::string between = "infiniband";   ///< constants of collectives between nodes
    std::int64_t domain = 1;              ///< nodes whose GPUs one NVSwitch fabric joins
    bool has_host = false;                ///< `host` was given
    NodeHost host;                        ///< memories beside those of the GPUs, and the way to them
    /// B/s between a GPU and its host or NIC, a direction: as given, by its PCIe link, or what copies of the device reach where a
    /// host is described; 0: not limiting.
    [[nodiscard]] double pcie_rate() const;
    /// B/s each way between so many devices of a node together and its DRAM: their links, or those of the switches that they share, or
    /// the DRAM where the host says its rate; 0: nothing limits.
    [[nodiscard]] double host_rate(double devices) const;
};

struct FabricSpec {
    PolicyChoice<TopologyPlan> topology{topology_table(), "leaf-spine"};
    double link = 0;          ///< B/s; 0: the NIC's rate
    double latency = 500e-9;  ///< s per link
};

/// Nodes of one kind, of a cluster of several.
struct GroupSpec {
    std::string name;
    std::int64_t nodes = 0;
    NodeSpec node;
    bool has_fabric = false;  ///< a fabric of its own; the cluster's then joins a further NIC of each node
    FabricSpec fabric;
};

/// How a budget is divided. equal: each GPU may draw its share of the tightest one, whatever the others draw: what breakers ask for, and
/// what synchronous jobs come to, whose GPUs are busy at the same time. demand: what a GPU cannot draw, by its own limit, goes to
/// those that can (max-min fairness); GPUs of a group, which share the work, all keep to what those in the fullest rack have.
enum class PowerSharing { equal, demand };

/// GPUs that can draw as much each.
struct PowerClaim {
    double gpus = 0;
    double most = 0;  ///< W
};
/// The most that any of them draws where together they draw no more than `budget`; infinity where all can draw what they can.
[[nodiscard]] double power_level(double budget, std::vector<PowerClaim> claims);

/// Budgets of power that the GPUs' clocks keep.
struct PowerBudget {
    bool given = false;
    PowerSharing sharing = PowerSharing::equal;
    double rack = 0;  ///< W; 0: none
    std::int64_t nodes_per_rack = 4;
    double cluster = 0;  ///< W; 0: none
    double beside = 0;   ///< W of a node beside its GPUs

    /// W of a GPU; 0: no budget.
    [[nodiscard]] double per_gpu(double nodes, double gpus) const;
};

struct ClusterSpec {
    bool mixed = false;             ///< `groups` was given, in place of `nodes` and `node`
    bool twice = false;             ///< both were
    std::vector<GroupSpec> groups;  ///< in the order of their nodes
    /// Of a mixed cluster: of all groups, and of the first.
    std::int64_t nodes = 0;
    std::int64_t hosts = 0;  ///< bare hosts with one NIC each, instead of nodes
    bool has_node = false;   ///< `node` was given; bare hosts have none
    NodeSpec node;
    FabricSpec fabric;
    PowerBudget power;
};

inline constexpr PresetKind kNodePresets{"node", "topologies/data/nodes", "gpu", "models/data/devices"};
inline constexpr PresetKind kDevicePresets{"device", "models/data/devices"};

void describe(Fields& fields, NodeSpec& node);
void describe(Fields& fields, ClusterSpec& cluster);

/// What a node of the cluster is made of, by its number.
[[nodiscard]] const NodeSpec& node_at(const ClusterSpec& cluster, std::uint32_t node);
/// Calls `change` for the description of every node that the cluster has: one, or that of each group.
void for_each_node(ClusterSpec& cluster, const std::function<void(NodeSpec&)>& change);
/// The fabrics between nodes: the cluster's, and those of groups.
[[nodiscard]] std::vector<const FabricSpec*> fabrics_of(const ClusterSpec& cluster);

/// Checks what a single field cannot see (a node is given, the fabric is not larger than the limits) and computes the
/// shape. Throws ConfigError with the position of the section.
[[nodiscard]] FabricShape shape_of(const ClusterSpec& cluster, const Mark& mark);
/// The same of a cluster that was read from `tree`, in which errors name the lines of what they are about.
[[nodiscard]] FabricShape shape_of(const ClusterSpec& cluster, const Mark& mark, const YamlNode* tree);

}  // namespace orrery::topologies
