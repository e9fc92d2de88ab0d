#pragma once
// What versions of engines take of a device before they divide the rest into cache blocks.
//
// Claims: an engine loads its weights, runs a batch as large as its limits allow and looks at the peak, starts its communicators and gives
// the cache what is left of its share. The peak is the larger of two phases: a layer at its widest, and the logits of all sequences
// with what sampling makes of them. Sampling with top-k and top-p in PyTorch sorts the logits in 32 bits with 64-bit indices (vLLM to 0.15,
// vllm/v1/sample/ops/topk_topp_sampler.py); later kernels do without. Buffers of routed experts stay beside both (vLLM, fused_moe.py).
// Graphs come on top of the share, or an estimate of them is taken from it (vLLM from 0.21, VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS).
// Scope: constants of a version, whatever model and device.
// Limits: batches of images, which encoders profile, are left out.
// Sources: each preset in workloads/data/engines names them.
// Validated by `orrery validate engine-memory`.

#include "sim/config/fields.hpp"

#include <cstdint>

namespace orrery::serving {

/// What the share of memory (kv.memory) covers. vllm: weights, peak and cache, of the whole device. sglang: weights and cache, of what is
/// free at start (mem_fraction_static). tensorrt-llm: the cache alone, of what weights and the peak leave (free_gpu_memory_fraction). none: no
/// rule is known.
enum class MemoryRule : std::uint8_t { none, vllm, sglang, tensorrt_llm };

struct MemoryRules {
    MemoryRule rule = MemoryRule::none;
    Sourced<double> context;        ///< B of a rank outside of the framework's allocator, without communicators
    Sourced<double> communicators;  ///< B of a rank besides, from two ranks on
    Sourced<double> logits;         ///< B of a sequence and an entry of the vocabulary at the peak of sampling
    Sourced<double> sampled_token;  ///< values of 16 bits, in widths of the model, that a token holds then
    Sourced<double> forward_token;  ///< the same at the widest point of a layer
    Sourced<double> forward_inner;  ///< the same there, in inner widths of the feed-forward
    Sourced<double> layer_graphs;   ///< B of graphs of a dense layer
    Sourced<double> expert_graphs;  ///< B of graphs of a layer with routed experts
    bool graphs_inside = false;     ///< the estimate of graphs is taken from the share
    bool hybrid = false;            ///< windowed and linear layers have pages of groups of their own
    bool counts_requests = false;   ///< prints as tokens the number of longest requests times their length
};

void describe(Fields& fields, MemoryRules& rules);

}  // namespace orrery::serving
