#include "sim/network/fabric.hpp"

#include "sim/network/topology/tree.hpp"

#include <algorithm>

namespace orrery::inline network {

std::uint32_t Fabric::reserve(std::size_t count, double capacity) {
    const auto first = static_cast<std::uint32_t>(capacities_.size());
    capacities_.insert(capacities_.end(), count, capacity);
    return first;
}

Fabric::Fabric(const FabricShape& shape) : shape_(shape) {
    const FabricShape& s = shape_;
    ORRERY_ASSERT(s.nodes > 0 && s.gpus_per_node > 0 && s.rails > 0 && s.nodes_per_leaf > 0 && s.spines > 0);
    if (s.nodes > 1 && (s.nics_per_node == 0 || s.nic_bandwidth <= 0)) {
        throw InfeasibleError("no route: node 1 cannot be reached from node 0, because the nodes have no NIC");
    }
    if (s.gpus_per_node > 1 && s.intra_bandwidth <= 0) {
        throw InfeasibleError("no route: GPU 1 cannot be reached from GPU 0 inside a node (no intra-node bandwidth)");
    }
    const std::uint32_t gpu_count = gpus();
    const std::uint32_t nic_count = s.nodes * s.nics_per_node;
    if (s.intra == IntraKind::mesh) {
        mesh_ = reserve(static_cast<std::size_t>(gpu_count) * (s.gpus_per_node - 1), s.intra_bandwidth);
        // The collectives see one port a GPU: its links to all peers together.
        intra_up_ = reserve(gpu_count, s.intra_bandwidth * (s.gpus_per_node - 1));
        intra_down_ = reserve(gpu_count, s.intra_bandwidth * (s.gpus_per_node - 1));
    } else {
        intra_up_ = reserve(gpu_count, s.intra_bandwidth);
        intra_down_ = reserve(gpu_count, s.intra_bandwidth);
    }
    if (s.pcie_bandwidth > 0) {
        pcie_up_ = reserve(gpu_count, s.pcie_bandwidth);
        pcie_down_ = reserve(gpu_count, s.pcie_bandwidth);
    }
    nic_out_ = reserve(nic_count, s.nic_bandwidth);
    nic_in_ = reserve(nic_count, s.nic_bandwidth);
    switch_links_ = reserve(0, 0);
    if (s.topology) {
        topology_ = s.topology(s);
    } else {
        auto tree = std::make_shared<const TreeTopology>(s);
        tree_ = tree.get();
        topology_ = std::move(tree);
    }
    capacities_.insert(capacities_.end(), topology_->capacities().begin(), topology_->capacities().end());
}

std::uint32_t Fabric::nic_of(GpuId gpu) const {
    const std::uint32_t local = gpu.value() % shape_.gpus_per_node;
    const std::uint32_t nic =
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(local) * shape_.nics_per_node / shape_.gpus_per_node);
    return node_of(gpu) * shape_.nics_per_node + nic;
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

GpuId Fabric::leaving_gpu(GpuId from, GpuId to) const {
    const std::uint32_t nic = nic_of(to);
    if (topology_->joined(nic_of(from), nic)) {
        return from;
    }
    // The first GPU of the node whose NIC is on the same rail.
    const std::uint32_t gpus = shape_.gpus_per_node;
    const std::uint32_t local = (nic % shape_.nics_per_node * gpus + shape_.nics_per_node - 1) / shape_.nics_per_node;
    return GpuId(node_of(from) * gpus + local);
}

std::uint32_t Fabric::mesh_link(GpuId from, GpuId to) const {
    const std::uint32_t peers = shape_.gpus_per_node - 1;
    const std::uint32_t a = from.value() % shape_.gpus_per_node;
    const std::uint32_t b = to.value() % shape_.gpus_per_node;
    return mesh_ + from.value() * peers + (b < a ? b : b - 1);
}

void Fabric::add_inside(Route& route, GpuId from, GpuId to) const {
    if (shape_.intra == IntraKind::mesh) {
        route.add(mesh_link(from, to));
    } else {
        route.add(intra_up_ + from.value());
        route.add(intra_down_ + to.value());
    }
    route.latency += shape_.intra_latency;
}

Route Fabric::route(GpuId from, GpuId to, PathChoice choice, std::uint64_t hash) const {
    ORRERY_ASSERT(from != to && from.value() < gpus() && to.value() < gpus());
    Route route;
    if (node_of(from) == node_of(to)) {
        add_inside(route, from, to);
        return route;
    }
    const GpuId leaving = leaving_gpu(from, to);
    if (leaving != from) {
        add_inside(route, from, leaving);
    }
    const std::uint32_t nic_a = nic_of(leaving);
    const std::uint32_t nic_b = nic_of(to);
    if (shape_.pcie_bandwidth > 0) {
        route.add(pcie_up_ + leaving.value());
    }
    route.add(nic_out_ + nic_a);
    route.latency += shape_.nic_latency;
    topology_->route(route, switch_links_, nic_a, nic_b, choice, hash);
    route.add(nic_in_ + nic_b);
    if (shape_.pcie_bandwidth > 0) {
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
        if (shape_.pcie_bandwidth > 0) {
            out.links.emplace_back(pcie_up_ + gpu.value());
            out.links.emplace_back(pcie_down_ + gpu.value());
        }
    }
    const std::uint32_t hops = tree_->add_tree(out.links, switch_links_, nics, choice, number);
    out.latency = shape_.nic_latency + hops * shape_.link_latency;
    return out;
}

void Fabric::add_to(ResourceModel& sharing) const {
    for (std::size_t i = 0; i < capacities_.size(); ++i) {
        const ResourceId id = sharing.add_resource(capacities_[i]);
        ORRERY_ASSERT(id.value() == i);
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
    if (shape_.intra == IntraKind::mesh) {
        tables.push_back({mesh_, "mesh link "});
    }
    if (shape_.pcie_bandwidth > 0) {
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
    return static_cast<std::size_t>(gpus()) + shape_.nodes + shape_.nics() + topology_->switches();
}

VertexKind Fabric::vertex_kind(std::uint32_t vertex) const {
    const std::uint32_t sizes[] = {gpus(), shape_.nodes, shape_.nics()};
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
    const std::uint32_t first_nic = node_switch + s.nodes;
    const std::uint32_t first_switch = first_nic + s.nics();
    std::vector<Link> out;
    const auto both = [&](std::uint32_t a, std::uint32_t b, std::uint32_t up, std::uint32_t down) {
        out.push_back(Link{a, b, ResourceId(up)});
        out.push_back(Link{b, a, ResourceId(down)});
    };
    for (std::uint32_t g = 0; g < gpus(); ++g) {
        if (s.intra == IntraKind::mesh) {
            const std::uint32_t base = g / s.gpus_per_node * s.gpus_per_node;
            for (std::uint32_t peer = base; peer < base + s.gpus_per_node; ++peer) {
                if (peer != g) {
                    out.push_back(Link{g, peer, ResourceId(mesh_link(GpuId(g), GpuId(peer)))});
                }
            }
        } else {
            both(g, node_switch + g / s.gpus_per_node, intra_up_ + g, intra_down_ + g);
        }
        if (s.nics_per_node > 0) {
            // Without a PCIe limit the NIC's own ports stand for this hop too.
            const std::uint32_t nic = nic_of(GpuId(g));
            const bool limited = s.pcie_bandwidth > 0;
            both(g, first_nic + nic, limited ? pcie_up_ + g : nic_out_ + nic, limited ? pcie_down_ + g : nic_in_ + nic);
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

}  // namespace orrery::inline network
