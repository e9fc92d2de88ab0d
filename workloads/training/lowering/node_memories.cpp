#include "workloads/training/lowering/node_memories.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::training {

// The most ranks on a node, by group of the fabric; 0: none is there.
static std::vector<std::int64_t> ranks_by_group(const TrainingInput& input) {
    const FabricShape& shape = input.fabric.shape();
    if (input.groups.empty()) {
        return {std::min<std::int64_t>(input.plan.ranks(), shape.gpus_per_node)};
    }
    std::vector<std::int64_t> of_node(shape.nodes);
    std::vector<std::int64_t> out(input.groups.size());
    for (std::int64_t rank = 0; rank < input.plan.ranks(); ++rank) {
        const GpuId gpu = input.placement.gpu(static_cast<std::uint32_t>(rank));
        std::int64_t& most = out[input.fabric.group_of(gpu)];
        most = std::max(most, ++of_node[input.fabric.node_of(gpu)]);
        ORRERY_ASSERT(most <= shape.gpus_per_node);
    }
    return out;
}

NodeMemories::NodeMemories(const TrainingInput& input, ResourceModel& model) : fabric_(input.fabric) {
    const FabricShape& shape = input.fabric.shape();
    if (input.groups.empty()) {
        by_group_.push_back(std::make_unique<NodeMemory>(*input.host, input.fabric, shape.pcie_bandwidth, model));
        return;
    }
    const std::vector<std::int64_t> ranks = ranks_by_group(input);
    by_group_.resize(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (ranks[i] > 0) {
            const NodeGroup& group = shape.groups[i];
            by_group_[i] = std::make_unique<NodeMemory>(*input.groups[i].host, input.fabric, group.pcie_bandwidth,
                                                        model, group.first, group.nodes);
        }
    }
}

const NodeMemory* NodeMemories::holding(ResourceId resource) const {
    for (const auto& memory : by_group_) {
        if (memory != nullptr && memory->has(resource)) {
            return memory.get();
        }
    }
    return nullptr;
}

std::vector<HostUse> host_uses(const TrainingInput& input) {
    const FabricShape& shape = input.fabric.shape();
    const std::vector<std::int64_t> ranks = ranks_by_group(input);
    std::vector<HostUse> out;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (ranks[i] == 0) {
            continue;
        }
        const bool alike = input.groups.empty();
        const NodeHost* host = alike ? input.host : input.groups[i].host;
        const auto count = static_cast<double>(ranks[i]);
        out.push_back({alike ? "" : shape.groups[i].name, host,
                       alike ? shape.pcie_bandwidth : shape.groups[i].pcie_bandwidth, count,
                       tier_use(input.model, input.plan, input.software, *host, count)});
    }
    return out;
}

bool fits(const std::vector<HostUse>& hosts) {
    return std::all_of(hosts.begin(), hosts.end(), [](const HostUse& of) {
        return std::all_of(of.tiers.begin(), of.tiers.end(),
                           [&](const TierUse& use) { return use.total() <= of.host->tiers[use.tier].bytes(); });
    });
}

}  // namespace orrery::training
