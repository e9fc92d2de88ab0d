#include "sim/network/node_memory.hpp"

#include <algorithm>

namespace orrery::network {

std::size_t NodeMemory::add(const std::string& name, double capacity) {
    names_.push_back(name);
    per_node_.push_back(capacity);
    return per_node_.size() - 1;
}

NodeMemory::NodeMemory(const NodeHost& host, const Fabric& fabric, double device_link, ResourceModel& model,
                       std::uint32_t first_node, std::uint32_t nodes)
    : host_(host), fabric_(fabric), first_node_(first_node) {
    ORRERY_ASSERT(device_link > 0);
    if (host.cores > 0 && host.core_bandwidth.value > 0) {
        cores_ = add("cores", static_cast<double>(host.cores) * host.core_bandwidth.value);
    }
    for (const MemoryTier& tier : host.tiers) {
        media_.push_back(add(tier.name, tier.read_rate()));
        const bool linked = tier.link_rate() > 0;
        links_out_.push_back(linked ? add("link of " + tier.name + ", reads", tier.link_rate()) : kNone);
        links_in_.push_back(linked ? add("link of " + tier.name + ", writes", tier.link_rate()) : kNone);
    }
    const std::uint32_t gpus = fabric.shape().gpus_per_node;
    const auto shared = static_cast<std::uint32_t>(host.devices_per_switch);
    for (std::uint32_t i = 0; shared > 0 && i < gpus / shared; ++i) {
        switch_up_.push_back(add("PCIe switch to host", device_link));
        switch_down_.push_back(add("PCIe switch from host", device_link));
    }
    // A node that reaches no other has no link to a NIC that its devices' links could be.
    for (std::uint32_t i = 0; fabric.gpus() == fabric.gpus_per_domain() && i < gpus; ++i) {
        device_up_.push_back(add("PCIe out of GPU", device_link));
        device_down_.push_back(add("PCIe into GPU", device_link));
    }
    for (std::uint32_t node = 0; node < nodes; ++node) {
        for (const double capacity : per_node_) {
            const ResourceId id = model.add_resource(capacity);
            if (capacities_.empty()) {
                first_ = id.value();
            }
            ORRERY_ASSERT(id.value() == first_ + capacities_.size());
            capacities_.push_back(capacity);
        }
    }
}

ResourceId NodeMemory::of(std::uint32_t node, std::size_t part) const {
    return ResourceId(first_ + (node - first_node_) * per_node_.size() + part);
}

std::string NodeMemory::resource_name(ResourceId resource) const {
    const std::size_t place = resource.value() - first_;
    return names_[place % per_node_.size()] + ", node " + std::to_string(first_node_ + place / per_node_.size());
}

void NodeMemory::read_tier(Demands& out, std::uint32_t node, std::size_t tier, double weight) const {
    out.push_back({of(node, media_[tier]), weight});
    if (links_out_[tier] != kNone) {
        out.push_back({of(node, links_out_[tier]), weight});
    }
}

// The medium's capacity counts bytes read: one written takes it for longer.
void NodeMemory::write_tier(Demands& out, std::uint32_t node, std::size_t tier, double weight) const {
    const MemoryTier& spec = host_.tiers[tier];
    out.push_back({of(node, media_[tier]), weight * spec.read_rate() / spec.write_rate()});
    if (links_in_[tier] != kNone) {
        out.push_back({of(node, links_in_[tier]), weight});
    }
}

void NodeMemory::cross(Demands& out, GpuId gpu, bool to_device) const {
    const std::uint32_t node = fabric_.node_of(gpu);
    const std::uint32_t local = gpu.value() % fabric_.shape().gpus_per_node;
    if (!switch_up_.empty()) {
        const std::size_t place = local / static_cast<std::uint32_t>(host_.devices_per_switch);
        out.push_back({of(node, to_device ? switch_down_[place] : switch_up_[place]), 1});
    }
    if (!device_up_.empty()) {
        out.push_back({of(node, to_device ? device_down_[local] : device_up_[local]), 1});
        return;
    }
    // The path to a GPU of another node that its NIC reaches begins, and the path from it ends, on the device's PCIe link: mostly the
    // GPU of the same place, but where nodes of groups spread their NICs over rails in unlike ways.
    for (std::uint32_t i = 0; i < fabric_.gpus_per_domain(); ++i) {
        const std::uint32_t domain = fabric_.gpus_per_domain();
        const std::uint32_t place = (gpu.value() + i) % domain;
        const GpuId peer((gpu.value() / domain * domain + domain + place) % fabric_.gpus());
        const Route route =
            to_device ? fabric_.route(peer, gpu, PathChoice::spray, 0) : fabric_.route(gpu, peer, PathChoice::spray, 0);
        const ResourceId link = to_device ? route.resources().back() : route.resources().front();
        if (fabric_.resource_name(link).rfind("PCIe", 0) == 0) {
            out.push_back({link, 1});
            return;
        }
    }
    ORRERY_ASSERT(false);
}

namespace {

// A resource is demanded once.
void merge(std::vector<Demand>& demands) {
    std::vector<Demand> out;
    for (const Demand& demand : demands) {
        const auto same =
            std::find_if(out.begin(), out.end(), [&](const Demand& d) { return d.resource == demand.resource; });
        if (same == out.end()) {
            out.push_back(demand);
        } else {
            same->weight += demand.weight;
        }
    }
    demands = std::move(out);
}

}  // namespace

NodeMemory::Hop NodeMemory::load(GpuId gpu, std::size_t tier) const {
    const std::uint32_t node = fabric_.node_of(gpu);
    Hop hop{{}, host_.tiers[tier].latency.value};
    read_tier(hop.demands, node, tier, 1);
    if (host_.dram() < host_.tiers.size()) {
        write_tier(hop.demands, node, host_.dram(), 1);
    }
    return hop;
}

NodeMemory::Hop NodeMemory::write_back(GpuId gpu, std::size_t tier) const {
    const std::uint32_t node = fabric_.node_of(gpu);
    Hop hop{{}, host_.tiers[tier].latency.value};
    if (host_.dram() < host_.tiers.size()) {
        read_tier(hop.demands, node, host_.dram(), 1);
    }
    write_tier(hop.demands, node, tier, 1);
    return hop;
}

std::vector<NodeMemory::Hop> NodeMemory::fetch(GpuId gpu, std::size_t tier) const {
    std::vector<Hop> out;
    std::size_t from = tier;
    if (!host_.tiers[tier].reached()) {
        out.push_back(load(gpu, tier));
        from = host_.dram();
    }
    Hop hop{{}, host_.tiers[from].latency.value};
    read_tier(hop.demands, fabric_.node_of(gpu), from, 1);
    cross(hop.demands, gpu, true);
    out.push_back(std::move(hop));
    return out;
}

NodeMemory::Hop NodeMemory::stream(const std::vector<GpuId>& gpus, std::size_t tier) const {
    Hop out{{}, 0};
    for (const GpuId gpu : gpus) {
        double latency = 0;
        for (const Hop& hop : fetch(gpu, tier)) {
            out.demands.insert(out.demands.end(), hop.demands.begin(), hop.demands.end());
            latency += hop.latency;
        }
        out.latency = std::max(out.latency, latency);
    }
    merge(out.demands);
    return out;
}

NodeMemory::Hop NodeMemory::gather(GpuId gpu, std::size_t tier, double row) const {
    const MemoryTier& spec = host_.tiers[tier];
    Hop out{update(gpu, {{tier, spec.whole(row) / row, 0}, {host_.dram(), 0, 1}}), 0};
    if (cores_ != kNone) {
        out.demands.push_back(
            {of(fabric_.node_of(gpu), cores_), spec.latency.value * host_.core_bandwidth.value / row});
        merge(out.demands);
    }
    return out;
}

NodeMemory::Hop NodeMemory::read_rows(GpuId gpu, std::size_t tier, double row, bool aligned) const {
    const MemoryTier& spec = host_.tiers[tier];
    Hop out{{}, spec.latency.value};
    cross(out.demands, gpu, true);
    for (Demand& link : out.demands) {
        link.weight *= PcieLink::row_weight(row, aligned);
    }
    read_tier(out.demands, fabric_.node_of(gpu), tier, spec.whole(row) / row);
    return out;
}

std::vector<NodeMemory::Hop> NodeMemory::store(GpuId gpu, std::size_t tier) const {
    const std::size_t to = host_.tiers[tier].reached() ? tier : host_.dram();
    Hop hop{{}, host_.tiers[to].latency.value};
    cross(hop.demands, gpu, false);
    write_tier(hop.demands, fabric_.node_of(gpu), to, 1);
    std::vector<Hop> out = {std::move(hop)};
    if (to != tier) {
        out.push_back(write_back(gpu, tier));
    }
    return out;
}

std::vector<Demand> NodeMemory::update(GpuId gpu, const std::vector<Traffic>& traffic) const {
    const std::uint32_t node = fabric_.node_of(gpu);
    const double nearest = host_.dram() < host_.tiers.size() ? host_.tiers[host_.dram()].latency.value : 0;
    Demands out;
    for (const Traffic& part : traffic) {
        ORRERY_ASSERT(host_.tiers[part.tier].addressed());
        if (part.read > 0) {
            read_tier(out, node, part.tier, part.read);
        }
        if (part.written > 0) {
            write_tier(out, node, part.tier, part.written);
        }
        if (cores_ != kNone) {
            const double latency = host_.tiers[part.tier].latency.value;
            const double slower = nearest > 0 && latency > nearest ? latency / nearest : 1;
            out.push_back({of(node, cores_), (part.read + part.written) * slower});
        }
    }
    merge(out);
    return out;
}

}  // namespace orrery::network
