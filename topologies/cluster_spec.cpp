#include "topologies/cluster_spec.hpp"

#include "sim/config/given.hpp"
#include "sim/network/topology/joined.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>

namespace orrery::topologies {

void describe(Fields& fields, NodeSpec& node) {
    fields.text({"name", "name of the node type"}, node.name);
    fields.integer({"gpus", "GPUs in a node", false, 1, 1024}, node.gpus);
    fields.section({"gpu", "device: a preset or its constants", true}, kDevicePresets,
                   [&](Fields& inner) { describe(inner, node.gpu); });
    fields.enumeration({"intra", "network of the GPUs in a node"}, {"nvswitch", "mesh", "pcie"}, node.intra);
    fields.sourced(
        {"intra_bandwidth", "bandwidth inside the node, per GPU and direction (mesh: per pair)", false, 0, 1e14},
        Dimension::rate, node.intra_bandwidth);
    fields.sourced({"package_bandwidth",
                    "mesh: between the two dies of a package, per direction (GPUs 0 and 1, 2 and 3)", false, 1, 1e14},
                   Dimension::rate, node.package_bandwidth);
    fields.sourced({"intra_latency", "latency of a transfer inside the node", false, 0, 1e-3}, Dimension::time,
                   node.intra_latency);
    fields.integer({"nics", "NICs in a node", false, 0, 1024}, node.nics);
    fields.sourced({"nic_bandwidth", "rate of a NIC per direction", false, 0, 1e14}, Dimension::rate,
                   node.nic_bandwidth);
    fields.sourced({"nic_latency", "latency through both NICs and hosts", false, 0, 1e-3}, Dimension::time,
                   node.nic_latency);
    fields.sourced({"pcie_bandwidth", "bandwidth between a GPU and its NIC; leave out: not limiting", false, 0, 1e14},
                   Dimension::rate, node.pcie_bandwidth);
    fields.table({"collectives", "table of measured collectives inside the node (models/data/collectives)"},
                 {"models/data/collectives", ".fit"}, node.collectives);
    fields.table({"between", "constants of collectives between nodes (models/data/collectives/between)"},
                 {"models/data/collectives/between", ".yaml"}, node.between);
    fields.integer({"domain", "nodes whose GPUs one NVSwitch fabric joins, as in a rack of GB200", false, 1, 4096},
                   node.domain);
    fields.optional({"host", "memory tiers outside the GPUs and the links to them: a preset or its parts"},
                    kHostPresets, node.has_host, [&](Fields& inner) { describe(inner, node.host); });
}

double NodeSpec::pcie_rate() const {
    if (!has_host || pcie_bandwidth.value > 0) {
        return pcie_bandwidth.value;
    }
    return host.pcie.generation > 0 ? host.pcie.rate() : gpu.host_bandwidth.value;
}

double NodeSpec::host_rate(double devices) const {
    if (!has_host) {
        return pcie_bandwidth.value * devices;
    }
    const auto shared = static_cast<double>(std::max<std::int64_t>(1, host.devices_per_switch));
    const double links = pcie_rate() * std::ceil(devices / shared);
    const std::size_t dram = host.dram();
    return dram < host.tiers.size() ? std::min(links, host.tiers[dram].read_rate()) : links;
}

static const PresetKind kFabricPresets{"fabric", "topologies/data/fabrics"};

static void describe(Fields& fields, FabricSpec& fabric) {
    fabric.topology.describe_choice(fields, {"kind", "arrangement of the switches"});
    fabric.topology.describe_parameters(fields);
    fields.quantity({"link", "rate of a host link (0: the NIC's)", false, 0, 1e14}, Dimension::rate, fabric.link);
    fields.quantity({"latency", "latency of a link, its switch included", false, 0, 1}, Dimension::time,
                    fabric.latency);
}

static void describe(Fields& fields, GroupSpec& group) {
    fields.text({"name", "name of the group", true}, group.name);
    fields.integer({"nodes", "nodes of the group", true, 1, 1'000'000}, group.nodes);
    fields.section({"node", "hardware of the group's nodes: a preset or its parts", true}, kNodePresets,
                   [&](Fields& inner) { describe(inner, group.node); });
    fields.optional(
        {"fabric", "network of the group's own nodes; the cluster's fabric then joins one further NIC of every node"},
        kFabricPresets, group.has_fabric, [&](Fields& inner) { describe(inner, group.fabric); });
}

static void describe(Fields& fields, PowerBudget& power) {
    fields.quantity({"rack", "power limit of a rack; 0 W: none", false, 0, 1e9}, Dimension::power, power.rack);
    fields.when(power.rack > 0, "a budget of a rack", [&](Fields& same) {
        same.integer({"nodes_per_rack", "nodes that share the budget of one rack", false, 1, 1 << 20},
                     power.nodes_per_rack);
    });
    fields.quantity({"cluster", "power limit of all nodes together; 0 W: none", false, 0, 1e12}, Dimension::power,
                    power.cluster);
    fields.quantity({"beside", "power of a node without its GPUs", false, 0, 1e6}, Dimension::power, power.beside);
    fields.enumeration(
        {"sharing", "sharing of the budget among GPUs: equal shares, or by demand, where others take what one leaves"},
        {"equal", "demand"}, power.sharing);
}

// Those that can draw least are served first: whom an equal share of what is left suffices takes no more than he can.
double power_level(double budget, std::vector<PowerClaim> claims) {
    std::sort(claims.begin(), claims.end(), [](const PowerClaim& a, const PowerClaim& b) { return a.most < b.most; });
    double gpus = 0;
    for (const PowerClaim& one : claims) {
        gpus += one.gpus;
    }
    for (const PowerClaim& one : claims) {
        ORRERY_ASSERT(gpus >= one.gpus * (1 - 1e-9));  // its own are among those that are left
        if (one.most * gpus > budget) {
            return budget / gpus;
        }
        budget -= one.most * one.gpus;
        ORRERY_ASSERT(budget >= 0);  // it took no more than an equal share
        gpus -= one.gpus;
    }
    return std::numeric_limits<double>::infinity();
}

double PowerBudget::per_gpu(double nodes, double gpus) const {
    double node = std::numeric_limits<double>::infinity();
    if (rack > 0) {
        node = rack / std::min(static_cast<double>(nodes_per_rack), nodes);
    }
    if (cluster > 0) {
        node = std::min(node, cluster / nodes);
    }
    return rack > 0 || cluster > 0 ? (node - beside) / gpus : 0;
}

void describe(Fields& fields, ClusterSpec& cluster) {
    const bool written = cluster.mixed;  // by a visitor that does not read: nodes are those of the groups
    std::int64_t none = 0;
    fields.integer({"nodes", "number of nodes", false, 0, 1'000'000}, written ? none : cluster.nodes);
    fields.integer({"hosts", "number of bare hosts with one NIC each, in place of nodes", false, 0, 1'000'000},
                   cluster.hosts);
    bool one_kind = !written && (cluster.has_node || cluster.nodes > 0);
    fields.optional({"node", "hardware of a node: a preset or its parts"}, kNodePresets, one_kind,
                    [&](Fields& inner) { describe(inner, cluster.node); });
    cluster.has_node = cluster.has_node || one_kind;
    fields.items({"groups", "groups of nodes in place of nodes, each of one kind, in this order; empty: none"},
                 cluster.groups, [](Fields& inner, GroupSpec& group) { describe(inner, group); });
    cluster.mixed = !cluster.groups.empty();
    fields.section({"fabric", "network of the nodes: a preset or its parts"}, kFabricPresets,
                   [&](Fields& inner) { describe(inner, cluster.fabric); });
    fields.optional({"power", "budgets of power: the clocks of GPUs keep to them"}, cluster.power.given,
                    [&](Fields& inner) { describe(inner, cluster.power); });
    // Where a fabric says the rate of its host links, that is the rate of the NICs.
    const auto own_rate = [&](const NodeSpec& node, const FabricSpec& fabric, const std::string& path) {
        fields.needs(
            path + ".nic_bandwidth",
            fabric.link <= 0 || node.nic_bandwidth.value == fabric.link || node.nic_bandwidth.how != kGivenInScenario,
            "a fabric without link, which is the rate of the NICs", Unmet::noted);
    };
    own_rate(cluster.node, cluster.fabric, "node");
    for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
        const GroupSpec& group = cluster.groups[i];
        own_rate(group.node, group.has_fabric ? group.fabric : cluster.fabric, "groups." + std::to_string(i) + ".node");
    }
    if (cluster.mixed && !written) {
        cluster.twice = cluster.has_node || cluster.nodes > 0;
        cluster.nodes = 0;
        for (const GroupSpec& group : cluster.groups) {
            cluster.nodes += group.nodes;
        }
        cluster.node = cluster.groups.front().node;
    }
}

const NodeSpec& node_at(const ClusterSpec& cluster, std::uint32_t node) {
    std::int64_t before = 0;
    for (const GroupSpec& group : cluster.groups) {
        before += group.nodes;
        if (node < before) {
            return group.node;
        }
    }
    return cluster.node;
}

void for_each_node(ClusterSpec& cluster, const std::function<void(NodeSpec&)>& change) {
    change(cluster.node);
    for (GroupSpec& group : cluster.groups) {
        change(group.node);
    }
}

std::vector<const FabricSpec*> fabrics_of(const ClusterSpec& cluster) {
    std::vector<const FabricSpec*> out = {&cluster.fabric};
    for (const GroupSpec& group : cluster.groups) {
        if (group.has_fabric) {
            out.push_back(&group.fabric);
        }
    }
    return out;
}

namespace {

// The place of "fabric.links[1]" in the tree of a cluster, or of the part of the path that is there.
Mark mark_at(const YamlNode* tree, const std::string& path, Mark mark) {
    std::istringstream parts(path);
    for (std::string part; tree != nullptr && std::getline(parts, part, '.');) {
        const std::size_t bracket = part.find('[');
        tree = tree->find(part.substr(0, bracket));
        if (tree != nullptr && bracket != std::string::npos) {
            mark = tree->mark;
            const std::size_t place = std::stoul(part.substr(bracket + 1));
            tree = place < tree->items.size() ? &tree->items[place] : nullptr;
        }
        mark = tree != nullptr ? tree->mark : mark;
    }
    return mark;
}

// The parts of nodes of one kind.
void take_node(FabricShape& shape, const NodeSpec& node, double link) {
    shape.gpus_per_node = static_cast<std::uint32_t>(node.gpus);
    shape.nics_per_node = static_cast<std::uint32_t>(node.nics);
    shape.nodes_per_domain = static_cast<std::uint32_t>(node.domain);
    shape.intra = node.intra;
    shape.intra_bandwidth = node.intra_bandwidth.value;
    shape.intra_latency = node.intra_latency.value;
    shape.nic_bandwidth = link > 0 ? link : node.nic_bandwidth.value;
    shape.nic_latency = node.nic_latency.value;
    shape.pcie_bandwidth = node.pcie_rate();
    shape.package_bandwidth = node.package_bandwidth.value;
}

// Two dies of a package are joined in a mesh alone, and all GPUs have a partner.
void check_packages(const NodeSpec& node, const std::string& whose, std::vector<std::string>& problems) {
    if (node.package_bandwidth.value > 0 && (node.intra != IntraKind::mesh || node.gpus % 2 != 0)) {
        problems.push_back("node.package_bandwidth" + whose + " needs node.intra: mesh and an even number of GPUs");
    }
}

// Memories of a node, and the way to them.
void check_host(const NodeSpec& node, const std::string& whose, std::vector<std::string>& problems) {
    if (!node.has_host) {
        return;
    }
    for (const std::string& problem : problems_of(node.host)) {
        problems.push_back(problem + whose + " ('node.host')");
    }
    if (node.pcie_bandwidth.value > 0 && node.host.pcie.generation > 0) {
        problems.push_back("node.pcie_bandwidth" + whose + " and node.host.pcie_generation say the same: give one");
    }
    if (node.pcie_rate() <= 0) {
        problems.push_back("nodes" + whose + " with a host need node.pcie_bandwidth or node.host.pcie_generation");
    }
    if (node.host.devices_per_switch > 0 && node.gpus % node.host.devices_per_switch != 0) {
        problems.push_back("node.host.devices_per_switch" + whose + " " + std::to_string(node.host.devices_per_switch) +
                           " must divide the " + std::to_string(node.gpus) + " GPUs of a node");
    }
}

// Nodes side by side behind one NVSwitch fabric.
void check_domain(const FabricShape& shape, const std::string& whose, std::vector<std::string>& problems) {
    if (shape.nodes_per_domain == 1) {
        return;
    }
    if (shape.nodes % shape.nodes_per_domain != 0) {
        problems.push_back(std::to_string(shape.nodes) + " nodes" + whose + " do not fill domains of " +
                           std::to_string(shape.nodes_per_domain) + " ('node.domain')");
    }
    if (shape.intra != IntraKind::nvswitch) {
        problems.push_back("a domain of several nodes" + whose + " needs node.intra: nvswitch");
    }
}

// What the groups have in common, and what each has of its own.
void take_groups(FabricShape& shape, const ClusterSpec& cluster, std::vector<std::string>& problems) {
    std::map<std::string, int> names;
    for (const GroupSpec& group : cluster.groups) {
        const std::size_t before = problems.size();
        if (names[group.name]++ == 1) {
            problems.push_back("group '" + group.name + "' is there twice");
        }
        FabricShape own;
        own.nodes = static_cast<std::uint32_t>(group.nodes);
        take_node(own, group.node, group.has_fabric ? group.fabric.link : cluster.fabric.link);
        check_domain(own, " of '" + group.name + "'", problems);
        check_host(group.node, " of '" + group.name + "'", problems);
        check_packages(group.node, " of '" + group.name + "'", problems);
        if (!shape.groups.empty() && own.gpus_per_node != shape.gpus_per_node) {
            problems.push_back("nodes of '" + group.name + "' have " + std::to_string(own.gpus_per_node) +
                               " GPUs, those of '" + cluster.groups.front().name + "' " +
                               std::to_string(shape.gpus_per_node) + ": all nodes of a cluster have the same number");
        }
        if (!shape.groups.empty() && own.nodes_per_domain != shape.nodes_per_domain) {
            problems.push_back("domains of '" + group.name + "' have " + std::to_string(own.nodes_per_domain) +
                               " nodes, those of '" + cluster.groups.front().name + "' " +
                               std::to_string(shape.nodes_per_domain) + ": all of a cluster have the same number");
        }
        if (group.has_fabric != cluster.groups.front().has_fabric) {
            problems.push_back("group '" + group.name + "' has " + (group.has_fabric ? "a" : "no") +
                               " fabric of its own, '" + cluster.groups.front().name + "' has " +
                               (group.has_fabric ? "none" : "one") + ": either all have one or none has");
        }
        if (own.nics_per_node == 0 || own.nic_bandwidth <= 0) {
            problems.push_back("nodes of '" + group.name + "' have no NIC, so that others cannot reach them");
        }
        for (std::size_t i = before; i < problems.size(); ++i) {
            problems[i] = problem_at("groups[" + std::to_string(&group - cluster.groups.data()) + "]", problems[i]);
        }
        if (shape.groups.empty()) {
            const std::uint32_t nodes = shape.nodes;
            shape = own;
            shape.nodes = nodes;
        }
        NodeGroup parts{group.name,
                        0,
                        own.nodes,
                        own.nics_per_node,
                        own.intra,
                        own.intra_bandwidth,
                        own.intra_latency,
                        own.pcie_bandwidth,
                        own.nic_bandwidth,
                        own.nic_latency,
                        own.package_bandwidth};
        parts.first = shape.groups.empty() ? 0 : shape.groups.back().first + shape.groups.back().nodes;
        shape.groups.push_back(parts);
        ORRERY_ASSERT(shape.groups.back().first + shape.groups.back().nodes <=
                      shape.nodes);  // their nodes make up the cluster
        shape.nics_per_node = std::max(shape.nics_per_node, own.nics_per_node);
        shape.nic_bandwidth = std::max(shape.nic_bandwidth, own.nic_bandwidth);
        shape.nic_latency = std::max(shape.nic_latency, own.nic_latency);
    }
}

// A fabric for each group and one that joins a further NIC of every node.
void join_fabrics(FabricShape& shape, const ClusterSpec& cluster, std::vector<std::string>& problems) {
    std::vector<FabricShape> fabrics;
    const auto add = [&](const FabricSpec& spec, const std::string& whose, const std::string& path, FabricShape own) {
        const auto plan = spec.topology.make();
        if (plan->needs_packets()) {
            problems.push_back("adaptive routing" + whose + " is simulated where one fabric joins all nodes");
        }
        own.gpus_per_node = shape.gpus_per_node;
        own.link_latency = spec.latency;
        own.groups.clear();
        std::vector<std::string> own_problems;
        plan->complete(own, own_problems);
        for (const std::string& problem : own_problems) {
            problems.push_back((problem.find('\n') != std::string::npos ? path : "") + problem + whose);
        }
        fabrics.push_back(std::move(own));
    };
    for (std::size_t i = 0; i < shape.groups.size(); ++i) {
        const NodeGroup& group = shape.groups[i];
        FabricShape own;
        own.nodes = group.nodes;
        own.nics_per_node = group.nics;
        own.nic_bandwidth = group.nic_bandwidth;
        add(cluster.groups[i].fabric, " (fabric of '" + group.name + "')", "groups[" + std::to_string(i) + "].",
            std::move(own));
    }
    if (cluster.fabric.link <= 0) {
        problems.push_back(
            "'fabric.link' is missing: the rate of the NIC by which nodes reach other groups, as groups have fabrics "
            "of "
            "their own");
    }
    ORRERY_ASSERT(fabrics.size() == shape.groups.size());
    FabricShape outer;
    outer.nodes = shape.nodes;
    outer.nics_per_node = 1;
    outer.nic_bandwidth = cluster.fabric.link;
    add(cluster.fabric, " (fabric between groups)", "", std::move(outer));
    shape.outer_bandwidth = cluster.fabric.link;
    ORRERY_ASSERT(fabrics.size() == shape.groups.size() + 1);  // one for each group, and that between them
    shape.nics_per_node += 1;
    shape.nic_bandwidth = std::max(shape.nic_bandwidth, shape.outer_bandwidth);
    shape.nodes_per_leaf = 1;
    shape.topology = [fabrics = std::move(fabrics)](const FabricShape& s) {
        return std::make_shared<JoinedFabrics>(s, fabrics);
    };
}

}  // namespace

FabricShape shape_of(const ClusterSpec& cluster, const Mark& mark) {
    return shape_of(cluster, mark, nullptr);
}

FabricShape shape_of(const ClusterSpec& cluster, const Mark& mark, const YamlNode* tree) {
    const FabricSpec& f = cluster.fabric;
    std::vector<std::string> problems;
    FabricShape shape;
    if (cluster.twice || (cluster.nodes > 0) == (cluster.hosts > 0)) {
        problems.emplace_back("a cluster has either 'nodes' (with a 'node'), 'groups' or 'hosts'");
    } else if (cluster.hosts > 0) {
        shape.nodes = static_cast<std::uint32_t>(cluster.hosts);
        shape.gpus_per_node = 1;
        shape.nics_per_node = 1;
        shape.nic_bandwidth = f.link;
    } else {
        if (cluster.node.gpu.memory.how.empty()) {
            problems.emplace_back("'node' is missing: a preset ('orrery list nodes') or its parts");
        }
        shape.nodes = static_cast<std::uint32_t>(cluster.nodes);
        if (cluster.mixed) {
            take_groups(shape, cluster, problems);
        } else {
            take_node(shape, cluster.node, f.link);
            check_domain(shape, "", problems);
            check_host(cluster.node, "", problems);
            check_packages(cluster.node, "", problems);
        }
    }
    if (std::max(cluster.nodes, cluster.hosts) > 4'000'000 / std::max(1U, shape.gpus_per_node)) {
        problems.emplace_back("more than 4,000,000 GPUs");
    }
    shape.link_latency = f.latency;
    if (cluster.mixed && !cluster.groups.empty() && cluster.groups.front().has_fabric) {
        join_fabrics(shape, cluster, problems);
    } else {
        f.topology.make()->complete(shape, problems);
    }
    if (cluster.hosts > 0 && shape.nic_bandwidth <= 0) {
        problems.emplace_back("'fabric.link' is missing: the rate of each host's link");
    }
    if (!problems.empty()) {
        std::vector<Diagnostic> errors;
        for (const std::string& problem : problems) {
            const std::size_t text = problem.find('\n') + 1;  // behind the path of what it is about, if any
            errors.push_back(
                (text > 0 ? mark_at(tree, problem.substr(0, text - 1), mark) : mark).error(problem.substr(text)));
        }
        throw ConfigError(errors);
    }
    return shape;
}

}  // namespace orrery::topologies
