#include "sim/network/fabric.hpp"

#include "sim/base/random.hpp"

#include <algorithm>
#include <set>

namespace orrery {

namespace {

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) {
    return (a + b - 1) / b;
}

void append(Route& route, std::uint32_t resource) {
    ORRERY_ASSERT(route.count < Route::kMaxLinks);
    route.links[route.count++] = ResourceId(resource);
}

}  // namespace

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
    const std::uint32_t groups = ceil_div(s.nodes, s.nodes_per_leaf);
    leaves_ = groups * s.rails;
    const double switch_links = 2.0 * leaves_ * s.spines + 2.0 * s.spines * s.cores_per_spine * leaves_;
    if (switch_links > 2e8) {
        throw InfeasibleError(
            "the fabric has more than 200 million switch links: use fewer spines or more nodes_per_leaf");
    }
    const double host_bandwidth = s.nodes_per_leaf * s.nics_per_node * s.nic_bandwidth / s.rails;
    const double leaf_bandwidth = host_bandwidth / s.leaf_oversubscription;
    pods_ = s.kind == FabricKind::fat_tree ? ceil_div(groups, s.leaf_groups_per_pod) : 1;
    spines_ = s.spines * pods_;
    leaf_up_ = reserve(static_cast<std::size_t>(leaves_) * s.spines, leaf_bandwidth / s.spines);
    leaf_down_ = reserve(static_cast<std::size_t>(leaves_) * s.spines, leaf_bandwidth / s.spines);
    leaf_up_bundle_ = reserve(leaves_, leaf_bandwidth);
    leaf_down_bundle_ = reserve(leaves_, leaf_bandwidth);
    if (s.kind == FabricKind::fat_tree) {
        const double pod_bandwidth = leaf_bandwidth * s.rails * s.leaf_groups_per_pod / s.spine_oversubscription;
        const double link = pod_bandwidth / s.spines / s.cores_per_spine;
        cores_ = s.spines * s.cores_per_spine;
        spine_up_ = reserve(static_cast<std::size_t>(spines_) * s.cores_per_spine, link);
        spine_down_ = reserve(static_cast<std::size_t>(spines_) * s.cores_per_spine, link);
        pod_up_bundle_ = reserve(pods_, pod_bandwidth);
        pod_down_bundle_ = reserve(pods_, pod_bandwidth);
    }
}

std::uint32_t Fabric::nic_of(GpuId gpu) const {
    const std::uint32_t local = gpu.value() % shape_.gpus_per_node;
    const std::uint32_t nic =
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(local) * shape_.nics_per_node / shape_.gpus_per_node);
    return node_of(gpu) * shape_.nics_per_node + nic;
}

std::uint32_t Fabric::leaf_of_nic(std::uint32_t nic) const {
    const std::uint32_t node = nic / shape_.nics_per_node;
    const std::uint32_t rail = nic % shape_.nics_per_node % shape_.rails;
    return node / shape_.nodes_per_leaf * shape_.rails + rail;
}

std::uint32_t Fabric::pod_of_leaf(std::uint32_t leaf) const {
    return shape_.kind == FabricKind::fat_tree ? leaf / shape_.rails / shape_.leaf_groups_per_pod : 0;
}

bool Fabric::same_pod(std::uint32_t leaf_a, std::uint32_t leaf_b) const {
    return pod_of_leaf(leaf_a) == pod_of_leaf(leaf_b);
}

std::uint32_t Fabric::mesh_link(GpuId from, GpuId to) const {
    const std::uint32_t peers = shape_.gpus_per_node - 1;
    const std::uint32_t a = from.value() % shape_.gpus_per_node;
    const std::uint32_t b = to.value() % shape_.gpus_per_node;
    return mesh_ + from.value() * peers + (b < a ? b : b - 1);
}

Route Fabric::route(GpuId from, GpuId to, PathChoice choice, std::uint64_t hash) const {
    ORRERY_ASSERT(from != to && from.value() < gpus() && to.value() < gpus());
    Route route;
    if (node_of(from) == node_of(to)) {
        if (shape_.intra == IntraKind::mesh) {
            append(route, mesh_link(from, to));
        } else {
            append(route, intra_up_ + from.value());
            append(route, intra_down_ + to.value());
        }
        route.latency = shape_.intra_latency;
        return route;
    }
    const std::uint32_t nic_a = nic_of(from);
    const std::uint32_t nic_b = nic_of(to);
    const std::uint32_t leaf_a = leaf_of_nic(nic_a);
    const std::uint32_t leaf_b = leaf_of_nic(nic_b);
    if (shape_.pcie_bandwidth > 0) {
        append(route, pcie_up_ + from.value());
    }
    append(route, nic_out_ + nic_a);
    std::uint32_t hops = 2;
    if (leaf_a != leaf_b) {
        const bool across_pods = !same_pod(leaf_a, leaf_b);
        hops += across_pods ? 4 : 2;
        if (choice == PathChoice::spray) {
            append(route, leaf_up_bundle_ + leaf_a);
            if (across_pods) {
                append(route, pod_up_bundle_ + pod_of_leaf(leaf_a));
                append(route, pod_down_bundle_ + pod_of_leaf(leaf_b));
            }
            append(route, leaf_down_bundle_ + leaf_b);
        } else {
            const std::uint64_t pick = mix64(hash);
            const auto spine = static_cast<std::uint32_t>(pick % shape_.spines);
            append(route, leaf_up_ + leaf_a * shape_.spines + spine);
            if (across_pods) {
                const auto core = static_cast<std::uint32_t>((pick >> 32) % shape_.cores_per_spine);
                const auto port = [&](std::uint32_t leaf) {
                    return (pod_of_leaf(leaf) * shape_.spines + spine) * shape_.cores_per_spine + core;
                };
                append(route, spine_up_ + port(leaf_a));
                append(route, spine_down_ + port(leaf_b));
            }
            append(route, leaf_down_ + leaf_b * shape_.spines + spine);
        }
    }
    append(route, nic_in_ + nic_b);
    if (shape_.pcie_bandwidth > 0) {
        append(route, pcie_down_ + to.value());
    }
    route.latency = shape_.nic_latency + hops * shape_.link_latency;
    return route;
}

TreeLinks Fabric::tree(std::span<const GpuId> members, PathChoice choice, std::uint32_t number) const {
    TreeLinks out;
    const auto add = [&](std::uint32_t resource) { out.links.emplace_back(resource); };
    std::set<std::uint32_t> leaves;
    std::set<std::uint32_t> pods;
    for (const GpuId gpu : members) {
        const std::uint32_t nic = nic_of(gpu);
        leaves.insert(leaf_of_nic(nic));
        pods.insert(pod_of_leaf(leaf_of_nic(nic)));
        add(nic_out_ + nic);
        add(nic_in_ + nic);
        if (shape_.pcie_bandwidth > 0) {
            add(pcie_up_ + gpu.value());
            add(pcie_down_ + gpu.value());
        }
    }
    const std::uint32_t spine = number % shape_.spines;
    const std::uint32_t core = number / shape_.spines % std::max(1U, shape_.cores_per_spine);
    for (const std::uint32_t leaf : leaves) {
        if (leaves.size() > 1) {
            add(leaf_up_ + leaf * shape_.spines + spine);
            add(leaf_down_ + leaf * shape_.spines + spine);
            if (choice == PathChoice::spray) {
                add(leaf_up_bundle_ + leaf);
                add(leaf_down_bundle_ + leaf);
            }
        }
    }
    for (const std::uint32_t pod : pods) {
        if (pods.size() > 1) {
            const std::uint32_t port = (pod * shape_.spines + spine) * shape_.cores_per_spine + core;
            add(spine_up_ + port);
            add(spine_down_ + port);
            if (choice == PathChoice::spray) {
                add(pod_up_bundle_ + pod);
                add(pod_down_bundle_ + pod);
            }
        }
    }
    const int hops = pods.size() > 1 ? 6 : leaves.size() > 1 ? 4 : 2;
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
    return shape_.leaf_oversubscription <= 1 &&
           (shape_.kind == FabricKind::leaf_spine || shape_.spine_oversubscription <= 1);
}

std::string Fabric::resource_name(ResourceId resource) const {
    const std::uint32_t id = resource.value();
    struct Table {
        std::uint32_t first;
        const char* name;
    };
    std::vector<Table> tables = {{intra_up_, "GPU to node switch, GPU "},
                                 {intra_down_, "node switch to GPU "},
                                 {nic_out_, "NIC out "},
                                 {nic_in_, "NIC in "},
                                 {leaf_up_, "leaf to spine, link "},
                                 {leaf_down_, "spine to leaf, link "},
                                 {leaf_up_bundle_, "uplinks of leaf "},
                                 {leaf_down_bundle_, "downlinks of leaf "}};
    if (shape_.intra == IntraKind::mesh) {
        tables.push_back({mesh_, "mesh link "});
    }
    if (shape_.pcie_bandwidth > 0) {
        tables.push_back({pcie_up_, "PCIe out of GPU "});
        tables.push_back({pcie_down_, "PCIe into GPU "});
    }
    if (shape_.kind == FabricKind::fat_tree) {
        tables.push_back({spine_up_, "spine to core, link "});
        tables.push_back({spine_down_, "core to spine, link "});
        tables.push_back({pod_up_bundle_, "uplinks of pod "});
        tables.push_back({pod_down_bundle_, "downlinks of pod "});
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
    return static_cast<std::size_t>(gpus()) + shape_.nodes +
           static_cast<std::size_t>(shape_.nodes) * shape_.nics_per_node + leaves_ + spines_ + cores_;
}

VertexKind Fabric::vertex_kind(std::uint32_t vertex) const {
    const std::uint32_t sizes[] = {gpus(), shape_.nodes, shape_.nodes * shape_.nics_per_node, leaves_, spines_};
    const VertexKind kinds[] = {VertexKind::gpu, VertexKind::node_switch, VertexKind::nic, VertexKind::leaf,
                                VertexKind::spine};
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
        if (vertex < sizes[i]) {
            return kinds[i];
        }
        vertex -= sizes[i];
    }
    return VertexKind::core;
}

std::vector<Fabric::Link> Fabric::links() const {
    const FabricShape& s = shape_;
    const std::uint32_t first_switch = gpus();
    const std::uint32_t first_nic = first_switch + s.nodes;
    const std::uint32_t first_leaf = first_nic + s.nodes * s.nics_per_node;
    const std::uint32_t first_spine = first_leaf + leaves_;
    const std::uint32_t first_core = first_spine + spines_;
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
            both(g, first_switch + g / s.gpus_per_node, intra_up_ + g, intra_down_ + g);
        }
        if (s.nics_per_node > 0) {
            // Without a PCIe limit the NIC's own ports stand for this hop too.
            const std::uint32_t nic = nic_of(GpuId(g));
            const bool limited = s.pcie_bandwidth > 0;
            both(g, first_nic + nic, limited ? pcie_up_ + g : nic_out_ + nic, limited ? pcie_down_ + g : nic_in_ + nic);
        }
    }
    for (std::uint32_t nic = 0; nic < s.nodes * s.nics_per_node; ++nic) {
        both(first_nic + nic, first_leaf + leaf_of_nic(nic), nic_out_ + nic, nic_in_ + nic);
    }
    for (std::uint32_t leaf = 0; leaf < leaves_; ++leaf) {
        for (std::uint32_t i = 0; i < s.spines; ++i) {
            both(first_leaf + leaf, first_spine + pod_of_leaf(leaf) * s.spines + i, leaf_up_ + leaf * s.spines + i,
                 leaf_down_ + leaf * s.spines + i);
        }
    }
    for (std::uint32_t spine = 0; cores_ > 0 && spine < spines_; ++spine) {
        for (std::uint32_t i = 0; i < s.cores_per_spine; ++i) {
            both(first_spine + spine, first_core + spine % s.spines * s.cores_per_spine + i,
                 spine_up_ + spine * s.cores_per_spine + i, spine_down_ + spine * s.cores_per_spine + i);
        }
    }
    return out;
}

}  // namespace orrery
