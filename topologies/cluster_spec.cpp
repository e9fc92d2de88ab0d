#include "topologies/cluster_spec.hpp"

#include <algorithm>

namespace orrery {

void describe(Fields& fields, NodeSpec& node) {
    fields.text({"name", "name of the node type"}, node.name);
    fields.integer({"gpus", "GPUs in a node", false, 1, 1024}, node.gpus);
    bool present = false;
    fields.section({"gpu", "the device: a preset or its constants", true}, kDevicePresets, present,
                   [&](Fields& inner) { describe(inner, node.gpu); });
    fields.enumeration({"intra", "what joins the GPUs of a node"}, {"nvswitch", "mesh", "pcie"}, node.intra);
    fields.sourced({"intra_bandwidth", "bandwidth inside the node, a GPU and direction (mesh: a pair)", false, 0, 1e14},
                   Dimension::rate, node.intra_bandwidth);
    fields.sourced({"intra_latency", "latency of a transfer inside the node", false, 0, 1e-3}, Dimension::time,
                   node.intra_latency);
    fields.integer({"nics", "NICs in a node", false, 0, 1024}, node.nics);
    fields.sourced({"nic_bandwidth", "rate of a NIC, a direction", false, 0, 1e14}, Dimension::rate,
                   node.nic_bandwidth);
    fields.sourced({"nic_latency", "latency through both NICs and hosts", false, 0, 1e-3}, Dimension::time,
                   node.nic_latency);
    fields.sourced({"pcie_bandwidth", "bandwidth between a GPU and its NIC; leave out: not limiting", false, 0, 1e14},
                   Dimension::rate, node.pcie_bandwidth);
    fields.table({"collectives", "table of measured collectives inside the node (models/data/collectives)"},
                 {"models/data/collectives", ".fit"}, node.collectives);
}

static const PresetKind kFabricPresets{"fabric", "topologies/data/fabrics"};

static void describe(Fields& fields, FabricSpec& fabric) {
    fabric.topology.describe_choice(fields, {"kind", "how the switches are arranged"});
    fabric.topology.describe_parameters(fields);
    fields.quantity({"link", "rate of a host link (0: the NIC's)", false, 0, 1e14}, Dimension::rate, fabric.link);
    fields.quantity({"latency", "latency of a link, its switch included", false, 0, 1}, Dimension::time,
                    fabric.latency);
}

void describe(Fields& fields, ClusterSpec& cluster) {
    fields.integer({"nodes", "number of nodes", false, 0, 1'000'000}, cluster.nodes);
    fields.integer({"hosts", "instead of nodes: bare hosts with one NIC each", false, 0, 1'000'000}, cluster.hosts);
    cluster.has_node = cluster.has_node || cluster.nodes > 0;
    fields.group(cluster.has_node, [&](Fields& same) {
        bool present = false;
        same.section({"node", "what a node is: a preset or its parts"}, kNodePresets, present,
                     [&](Fields& inner) { describe(inner, cluster.node); });
    });
    bool given = false;
    fields.section({"fabric", "what joins the nodes: a preset or its parts"}, kFabricPresets, given,
                   [&](Fields& inner) { describe(inner, cluster.fabric); });
}

FabricShape shape_of(const ClusterSpec& cluster, const Mark& mark) {
    const FabricSpec& f = cluster.fabric;
    std::vector<Diagnostic> errors;
    FabricShape shape;
    if ((cluster.nodes > 0) == (cluster.hosts > 0)) {
        errors.push_back(mark.error("a cluster has either 'nodes' (with a 'node') or 'hosts'"));
    } else if (cluster.hosts > 0) {
        shape.nodes = static_cast<std::uint32_t>(cluster.hosts);
        shape.gpus_per_node = 1;
        shape.nics_per_node = 1;
        shape.nic_bandwidth = f.link;
    } else {
        if (cluster.node.gpu.memory.how.empty()) {
            errors.push_back(mark.error("'node' is missing: a preset ('orrery list nodes') or its parts"));
        }
        shape.nodes = static_cast<std::uint32_t>(cluster.nodes);
        shape.gpus_per_node = static_cast<std::uint32_t>(cluster.node.gpus);
        shape.nics_per_node = static_cast<std::uint32_t>(cluster.node.nics);
        shape.intra = cluster.node.intra;
        shape.intra_bandwidth = cluster.node.intra_bandwidth.value;
        shape.intra_latency = cluster.node.intra_latency.value;
        shape.nic_bandwidth = f.link > 0 ? f.link : cluster.node.nic_bandwidth.value;
        shape.nic_latency = cluster.node.nic_latency.value;
        shape.pcie_bandwidth = cluster.node.pcie_bandwidth.value;
    }
    if (static_cast<std::int64_t>(shape.nodes) * shape.gpus_per_node > 4'000'000) {
        errors.push_back(mark.error("more than 4,000,000 GPUs"));
    }
    shape.link_latency = f.latency;
    std::vector<std::string> problems;
    f.topology.make()->complete(shape, problems);
    for (const std::string& problem : problems) {
        errors.push_back(mark.error(problem));
    }
    if (cluster.hosts > 0 && shape.nic_bandwidth <= 0) {
        errors.push_back(mark.error("'fabric.link' is missing: the rate of each host's link"));
    }
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    return shape;
}

}  // namespace orrery
