#pragma once
// Memory of a device as an engine divides it at start, and the cache that it prints.
//
// Claims: the pool of the cache is the engine's share of the device less weights as stored, the peak of its profiling run, memory outside of its
// allocator and, from some version on, graphs (engine/memory_rules.hpp). Weights as stored have factors of their formats, experts in MXFP4
// padded to multiples of 256, and copies on every rank of what tensor parallelism does not divide. A hybrid cache has pages of equal size: layers
// of one kind make groups as large as the rarest kind has layers, and a token block of full attention is at least as large as a state
// (vllm/v1/core/kv_cache_utils.py and vllm/platforms/interface.py). Then a page is one block of one group; a window needs pages of what it reaches
// and of a batch's tokens, a state one page, and one more with a prefix cache (vllm/v1/core/single_type_kv_cache_manager.py). SGLang gives windowed
// layers 0.8 of the tokens of the others, and states 0.9 of the bytes of the rest (server_args.py: swa_full_tokens_ratio, mamba_full_memory_ratio).
// Scope: vLLM, SGLang and TensorRT-LLM, by the version that `software` names. Limits: layers of one model have keys and values of one size;
// drafts have no cache of their own; TensorRT-LLM keeps the whole length of windowed layers.
// Validated by `orrery validate engine-memory` and tests/workloads/engine_memory_test.cpp.

#include "workloads/serving/spec.hpp"

namespace orrery::serving {

/// What a rank of a stage holds before the engine sizes its cache, in B.
struct RankMemory {
    double total = 0;    ///< of the device, as its driver shows it to a program
    double weights = 0;  ///< as stored, without `slots`
    double slots = 0;    ///< adapters, or further models
    double other = 0;    ///< outside of the allocator: contexts and communicators
    double peak = 0;     ///< of the profiling run
    double graphs = 0;   ///< as estimated
    double buffers = 0;  ///< of a compressed cache
    double pool = 0;     ///< what the cache gets; may be negative
};

/// Pages of a cache over all layers of a stage.
struct CachePages {
    double bytes = 0;        ///< of a page on a rank
    double tokens = 0;       ///< of a block of full attention
    double full = 0;         ///< groups of layers that attend to everything
    double windowed = 0;     ///< groups of layers with a window
    double states = 0;       ///< groups of layers with a state
    double window = 0;       ///< tokens
    double batch = 0;        ///< tokens of an iteration
    double state_pages = 0;  ///< of a sequence in a group of states

    [[nodiscard]] double groups() const { return full + windowed + states; }
    /// Pages that a sequence of `length` tokens takes.
    [[nodiscard]] double of_sequence(double length) const;
    /// Tokens of the longest sequence that fits in `pages`.
    [[nodiscard]] double longest(double pages) const;
};

/// The cache of an attention group of a replica.
struct EngineCache {
    RankMemory rank;         ///< of the stage with the least
    double tokens = 0;       ///< as the engine prints them
    double blocks = 0;       ///< as the engine counts them
    double concurrency = 0;  ///< longest requests that it has room for
    double context = 0;      ///< tokens of the longest request
    double capacity = 0;     ///< tokens of longest requests that it has room for
    std::string refusal;     ///< why the engine does not start; empty: it does
};

/// B of the states of linear attention that a rank keeps for as many sequences as run at once, of all layers.
[[nodiscard]] double state_bytes_per_rank(const ModelSpec& model, const PhaseSpec& phase);

/// The pages of a cache that is one pool for all layers, or groups of them.
[[nodiscard]] CachePages pages_of(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model,
                                  double share);

/// Precondition: engine.sized_by_engine().
[[nodiscard]] EngineCache engine_cache(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model,
                                       const DeviceSpec& device);

/// The cache in the words of the engine's log.
[[nodiscard]] std::string log_line(const EngineSpec& engine, const EngineCache& cache);

}  // namespace orrery::serving
