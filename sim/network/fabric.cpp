#include "sim/network/fabric.hpp"

#include "sim/network/topology/tree.hpp"

#include <algorithm>

namespace orrery::network {

template <class Capacity>
std::uint32_t Fabric::reserve(std::size_t per_node, const Capacity& capacity) {
    const auto first = static_cast<std::uint32_t>(capacities_.size());
    for (const NodeGroup& group : groups_) {
        capacities_.insert(capacities_.end(), group.nodes * per_node, capacity(group));
    }
    return first;
}

void Fabric::require_paths() const {
    for (const NodeGroup& group : groups_) {
        if (shape_.nodes > 1 && (group.nics == 0 || group.nic_bandwidth <= 0)) {
            throw InfeasibleError(
                "no route: node 1 cannot be reached from node 0, because the nodes have no NIC: "
                "give cluster.node.nics and nic_bandwidth",
                ErrorCode::no_route);
        }
        if (shape_.gpus_per_node > 1 && group.intra_bandwidth <= 0) {
            throw InfeasibleError(
                "no route: GPU 1 cannot be reached from GPU 0 inside a node: give cluster.node.intra_bandwidth, in one "
                "direction of a GPU, such as 32 GB/s of PCIe 4.0 x16",
                ErrorCode::no_route);
        }
    }
}

Fabric::Fabric(const FabricShape& shape) : shape_(shape), groups_(shape.groups) {
    const FabricShape& s = shape_;
    ORRERY_ASSERT(s.nodes > 0 && s.gpus_per_node > 0 && s.rails > 0 && s.nodes_per_leaf > 0 && s.spines > 0);
    if (groups_.empty()) {
        groups_.push_back({"", 0, s.nodes, s.nics_per_node, s.intra, s.intra_bandwidth, s.intra_latency,
                           s.pcie_bandwidth, s.nic_bandwidth, s.nic_latency, s.package_bandwidth});
    }
    require_paths();
    for (const NodeGroup& group : groups_) {
        meshes_ = meshes_ || group.intra == IntraKind::mesh;
        pcie_limits_ = pcie_limits_ || group.pcie_bandwidth > 0;
    }
    // Resources that a group has no use for are there, too, so that numbers follow those of GPUs.
    constexpr double kUnused = 1;
    const std::uint32_t peers = s.gpus_per_node - 1;
    if (meshes_) {
        mesh_ = reserve(static_cast<std::size_t>(s.gpus_per_node) * peers, [](const NodeGroup& group) {
            return group.intra == IntraKind::mesh ? group.intra_bandwidth : kUnused;
        });
        for (const NodeGroup& group : groups_) {
            const std::uint32_t gpu = group.first * s.gpus_per_node;
            for (std::uint32_t i = 0; group.package_bandwidth > 0 && i < group.nodes * s.gpus_per_node; ++i) {
                if (const GpuId own(gpu + i), other((gpu + i) ^ 1U); other.value() < gpus()) {
                    capacities_[mesh_link(own, other)] = group.package_bandwidth;
                }
            }
        }
    }
    // The collectives see one port a GPU: in a mesh its links to all peers together.
    const auto port = [&](const NodeGroup& group) {
        return group.intra == IntraKind::mesh ? std::max(group.intra_bandwidth * peers, group.package_bandwidth)
                                              : group.intra_bandwidth;
    };
    intra_up_ = reserve(s.gpus_per_node, port);
    intra_down_ = reserve(s.gpus_per_node, port);
    if (pcie_limits_) {
        const auto rate = [](const NodeGroup& group) {
            return group.pcie_bandwidth > 0 ? group.pcie_bandwidth : kUnused;
        };
        pcie_up_ = reserve(s.gpus_per_node, rate);
        pcie_down_ = reserve(s.gpus_per_node, rate);
    }
    const auto nic = [](const NodeGroup& group) { return group.nic_bandwidth; };
    nic_out_ = reserve(s.nics_per_node, nic);
    nic_in_ = reserve(s.nics_per_node, nic);
    for (std::uint32_t node = 0; s.outer_bandwidth > 0 && node < s.nodes; ++node) {
        capacities_[nic_out_ + outer_nic(node)] = s.outer_bandwidth;
        capacities_[nic_in_ + outer_nic(node)] = s.outer_bandwidth;
    }
    switch_links_ = static_cast<std::uint32_t>(capacities_.size());
    if (s.topology) {
        topology_ = s.topology(s);
    } else {
        auto tree = std::make_shared<const TreeTopology>(s);
        tree_ = tree.get();
        topology_ = std::move(tree);
    }
    capacities_.insert(capacities_.end(), topology_->capacities().begin(), topology_->capacities().end());
}

std::uint32_t Fabric::group_of_node(std::uint32_t node) const {
    if (groups_.size() == 1) {
        return 0;
    }
    const auto after =
        std::upper_bound(groups_.begin(), groups_.end(), node,
                         [](std::uint32_t wanted, const NodeGroup& group) { return wanted < group.first; });
    return static_cast<std::uint32_t>(after - groups_.begin() - 1);
}

std::uint32_t Fabric::nic_of(GpuId gpu) const {
    const std::uint32_t nics = parts_of(gpu).nics;
    if (nics == shape_.gpus_per_node && nics == shape_.nics_per_node) {
        return gpu.value();  // one each, without divisions
    }
    const std::uint32_t local = gpu.value() % shape_.gpus_per_node;
    const auto nic = static_cast<std::uint32_t>(static_cast<std::uint64_t>(local) * nics / shape_.gpus_per_node);
    return node_of(gpu) * shape_.nics_per_node + nic;
}

Fabric::Crossing Fabric::crossing(GpuId from, GpuId to) const {
    if (shape_.outer_bandwidth > 0 && group_of(from) != group_of(to)) {
        return {from, outer_nic(node_of(from)), outer_nic(node_of(to))};
    }
    const std::uint32_t out = nic_of(from);
    const std::uint32_t in = nic_of(to);
    if (topology_->joined(out, in)) {
        return {from, out, in};
    }
    // The first GPU of the node whose NIC is on the same rail.
    const std::uint32_t gpus = shape_.gpus_per_node;
    const std::uint32_t nics = parts_of(from).nics;
    const std::uint32_t local = (in % shape_.nics_per_node * gpus + nics - 1) / nics;
    const GpuId leaving(node_of(from) * gpus + local);
    return {leaving, nic_of(leaving), in};
}

std::uint32_t Fabric::leaves() const {
    return tree_ != nullptr ? tree_->leaves() : 0;
}

std::uint32_t Fabric::spines() const {
    return tree_ != nullptr ? tree_->spines() : 0;
}

std::uint32_t Fabric::cores() const {
    return tree_ != nullptr ? tree_->cores() : 0;
}

double Fabric::core_link_rate() const {
    return tree_ != nullptr ? tree_->core_link_rate() : 0;
}

std::uint32_t Fabric::mesh_link(GpuId from, GpuId to) const {
    const std::uint32_t peers = shape_.gpus_per_node - 1;
    const std::uint32_t a = from.value() % shape_.gpus_per_node;
    const std::uint32_t b = to.value() % shape_.gpus_per_node;
    return mesh_ + from.value() * peers + (b < a ? b : b - 1);
}

void Fabric::add_inside(Route& route, GpuId from, GpuId to) const {
    const NodeGroup& parts = parts_of(from);
    if (parts.intra == IntraKind::mesh) {
        route.add(mesh_link(from, to));
    } else {
        route.add(intra_up_ + from.value());
        route.add(intra_down_ + to.value());
    }
    route.latency += parts.intra_latency;
}

Route Fabric::route(GpuId from, GpuId to, PathChoice choice, std::uint64_t hash) const {
    ORRERY_ASSERT(from != to && from.value() < gpus() && to.value() < gpus());
    Route route;
    if (domain_of(from) == domain_of(to)) {
        add_inside(route, from, to);
        return route;
    }
    const auto [leaving, out, in] = crossing(from, to);
    if (leaving != from) {
        add_inside(route, from, leaving);
    }
    const NodeGroup& sender = parts_of(leaving);
    const NodeGroup& receiver = parts_of(to);
    if (sender.pcie_bandwidth > 0) {
        route.add(pcie_up_ + leaving.value());
    }
    route.add(nic_out_ + out);
    route.latency += (sender.nic_latency + receiver.nic_latency) / 2;
    topology_->route(route, switch_links_, out, in, choice, hash + shape_.hash_salt);
    route.add(nic_in_ + in);
    if (receiver.pcie_bandwidth > 0) {
        route.add(pcie_down_ + to.value());
    }
    return route;
}

TreeLinks Fabric::tree(std::span<const GpuId> members, PathChoice choice, std::uint32_t number) const {
    if (tree_ == nullptr) {
        throw InfeasibleError("in-network reduction needs a leaf-spine fabric or a fat tree");
    }
    TreeLinks out;
    std::vector<std::uint32_t> nics;
    for (const GpuId gpu : members) {
        nics.push_back(nic_of(gpu));
        out.links.emplace_back(nic_out_ + nics.back());
        out.links.emplace_back(nic_in_ + nics.back());
        const NodeGroup& parts = parts_of(gpu);
        if (parts.pcie_bandwidth > 0) {
            out.links.emplace_back(pcie_up_ + gpu.value());
            out.links.emplace_back(pcie_down_ + gpu.value());
        }
        out.latency = std::max(out.latency, parts.nic_latency);
    }
    const std::uint32_t hops = tree_->add_tree(out.links, switch_links_, nics, choice, number);
    out.latency += hops * shape_.link_latency;
    return out;
}

void Fabric::add_to(ResourceModel& sharing) const {
    if (!capacities_.empty()) {
        const ResourceId first = sharing.add_resources(capacities_);
        ORRERY_ASSERT(first.value() == 0);
    }
}

bool Fabric::full_bisection() const {
    return topology_->full_bisection();
}

std::string Fabric::resource_name(ResourceId resource) const {
    const std::uint32_t id = resource.value();
    if (id >= switch_links_) {
        return topology_->resource_name(id - switch_links_);
    }
    struct Table {
        std::uint32_t first;
        const char* name;
    };
    std::vector<Table> tables = {{intra_up_, "GPU to node switch, GPU "},
                                 {intra_down_, "node switch to GPU "},
                                 {nic_out_, "NIC out "},
                                 {nic_in_, "NIC in "}};
    if (meshes_) {
        tables.push_back({mesh_, "mesh link "});
    }
    if (pcie_limits_) {
        tables.push_back({pcie_up_, "PCIe out of GPU "});
        tables.push_back({pcie_down_, "PCIe into GPU "});
    }
    const Table* best = nullptr;
    for (const Table& table : tables) {
        if (table.first <= id && (best == nullptr || table.first > best->first)) {
            best = &table;
        }
    }
    ORRERY_ASSERT(best != nullptr);
    return best->name + std::to_string(id - best->first);
}

std::size_t Fabric::vertex_count() const {
    return static_cast<std::size_t>(gpus()) + domains() + shape_.nics() + topology_->switches();
}

VertexKind Fabric::vertex_kind(std::uint32_t vertex) const {
    const std::uint32_t sizes[] = {gpus(), domains(), shape_.nics()};
    const VertexKind kinds[] = {VertexKind::gpu, VertexKind::node_switch, VertexKind::nic};
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
        if (vertex < sizes[i]) {
            return kinds[i];
        }
        vertex -= sizes[i];
    }
    return topology_->switch_kind(vertex);
}

std::vector<Fabric::Link> Fabric::links() const {
    const FabricShape& s = shape_;
    const std::uint32_t node_switch = gpus();
    const std::uint32_t first_nic = node_switch + domains();
    const std::uint32_t first_switch = first_nic + s.nics();
    std::vector<Link> out;
    const auto both = [&](std::uint32_t a, std::uint32_t b, std::uint32_t up, std::uint32_t down) {
        out.push_back(Link{a, b, ResourceId(up)});
        out.push_back(Link{b, a, ResourceId(down)});
    };
    for (std::uint32_t g = 0; g < gpus(); ++g) {
        const NodeGroup& parts = parts_of(GpuId(g));
        if (parts.intra == IntraKind::mesh) {
            const std::uint32_t base = g / s.gpus_per_node * s.gpus_per_node;
            for (std::uint32_t peer = base; peer < base + s.gpus_per_node; ++peer) {
                if (peer != g) {
                    out.push_back(Link{g, peer, ResourceId(mesh_link(GpuId(g), GpuId(peer)))});
                }
            }
        } else {
            both(g, node_switch + domain_of(GpuId(g)), intra_up_ + g, intra_down_ + g);
        }
        // Without a PCIe limit the NIC's own ports stand for this hop too.
        const auto join = [&](std::uint32_t nic) {
            const bool limited = parts.pcie_bandwidth > 0;
            both(g, first_nic + nic, limited ? pcie_up_ + g : nic_out_ + nic, limited ? pcie_down_ + g : nic_in_ + nic);
        };
        if (parts.nics > 0) {
            join(nic_of(GpuId(g)));
        }
        if (s.outer_bandwidth > 0) {
            join(outer_nic(node_of(GpuId(g))));
        }
    }
    for (std::uint32_t nic = 0; nic < s.nics(); ++nic) {
        both(first_nic + nic, first_switch + topology_->switch_of(nic), nic_out_ + nic, nic_in_ + nic);
    }
    const std::vector<SwitchLink> links = topology_->links();
    for (std::uint32_t i = 0; i < links.size(); ++i) {
        if (links[i].from != links[i].to) {
            out.push_back(
                Link{first_switch + links[i].from, first_switch + links[i].to, ResourceId(switch_links_ + i)});
        }
    }
    return out;
}

}  // namespace orrery::network
