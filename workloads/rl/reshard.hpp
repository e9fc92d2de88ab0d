#pragma once
// Which trained weights each GPU of the generator gets, and from which GPU.
//
// Claims: a model is a box of layers by experts by width. A pipeline stage holds a band of its layers, a tensor-parallel rank a band of its
// width, an expert-parallel rank a band of its experts; what a rank of the generator needs of what a rank of training holds is where their
// bands meet. All but routed experts is a box with one expert, and their ranks are told apart (two calls). Replicas of training hold the
// same (ZeRO-3: each a share of it): a rank takes a part from its own GPU, where it is there, which costs nothing, else from its node,
// else from a node of the network; of several that are as near from the one that has least to send. Limits: every layer and every part of
// its width has as many bytes; what a rank gathers beside its own share before it sends is not counted; no switch copies messages.
// Sources: Sheng et al., "HybridFlow", arXiv:2409.19256, section 5 (resharding between training and generation); Wu et al., "LlamaRL",
// arXiv:2505.24034 (each rank gets its shard directly).
// Validated by tests/workloads/rl_test.cpp (conservation, closed forms).

#include "sim/network/fabric.hpp"

#include <vector>

namespace orrery::rl {

/// GPUs that hold a model, or its routed experts. A shard: band t of the width of band e of the experts, e * tensor + t.
struct WeightHolders {
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::int64_t replicas = 1;
    std::vector<GpuId> gpus;     ///< by (stage, replica, shard), or by (replica, stage, shard)
    bool stages_inside = false;  ///< all stages of a replica are beside each other
    bool shared = false;         ///< replicas hold shares of the weights, not copies
    std::int64_t expert = 1;     ///< bands of experts

    [[nodiscard]] std::int64_t shards() const { return expert * tensor; }
    [[nodiscard]] GpuId at(std::int64_t stage, std::int64_t replica, std::int64_t shard) const {
        const std::int64_t outer = stages_inside ? replica * pipeline + stage : stage * replicas + replica;
        return gpus.at(static_cast<std::size_t>(outer * shards() + shard));
    }
};

struct WeightMove {
    GpuId from, to;
    double bytes;
};

/// Moves between unlike GPUs, one for each pair of them, in order.
[[nodiscard]] std::vector<WeightMove> reshard(const Fabric& fabric, const WeightHolders& from, const WeightHolders& to,
                                              double model_bytes);

}  // namespace orrery::rl
