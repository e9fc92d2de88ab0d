#pragma once
// Experts of a model that live outside the devices: which of them a replica's devices hold, and what an iteration has to bring.
//
// Claims: the devices hold so many experts of each layer. A token chooses its experts by their popularity (Zipf), whatever the tokens
// before it chose; an iteration needs those that any of its tokens chose. What is there is found before anything goes; what is not is
// brought and kept in place of what no token of the iteration needs (LRU or LFU), and passes through a buffer where all of the layer's
// places are needed. A prediction made some layers ahead names each missing expert with a given chance, and in place of one that it
// does not name another, which is brought in vain unless it is there. Weights are only read: what goes costs nothing. Experts that come
// from drives stay in DRAM as far as it has room, the last used ones.
// Engines that offload layers bring all experts of each, whatever its tokens choose.
// Scope: a replica whose ranks share every expert (no expert parallelism), one pipeline stage.
// Limits: tokens of one sequence choose no more alike than those of several; what is brought in vain is not kept.
// Sources: Eliseev and Mazur, "Fast inference of mixture-of-experts language models with offloading", arXiv:2312.17238 (LRU by layer,
// prefetch a layer ahead); Xue et al., "MoE-Infinity", arXiv:2401.14361; He et al., "ExpertFlow", arXiv:2410.17954 (prediction).
// Validated by tests/workloads/expert_cache_test.cpp (Che's approximation; counts by hand).

#include "sim/base/random.hpp"
#include "sim/device/tier_cache.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::serving {

/// needed: those that tokens chose; layer: all of a layer, whatever the tokens choose.
enum class Brings { needed, layer };

struct ExpertCacheSpec {
    std::int64_t experts = 1;   ///< of each layer on a replica's devices
    std::string tier = "dram";  ///< of the host, which has all of them
    double host = 0;            ///< B of DRAM that keep what came from drives
    Eviction eviction = Eviction::lru;
    std::int64_t pinned = 0;  ///< of each layer, the most popular ones, which never go
    double skew = 0;          ///< the k-th is chosen in proportion to 1 / k^skew
    Brings brings = Brings::needed;
    bool prefetches = false;  ///< the next two are given
    std::int64_t ahead = 1;   ///< layers
    double hit_rate = 1;      ///< share of the missing experts that the prediction names
};

/// What a layer of an iteration brings, in experts.
struct LayerLoads {
    struct From {
        std::uint32_t dram = 0;  ///< what came from drives earlier; 0 where the home is DRAM
        std::uint32_t home = 0;  ///< the tier that has all
        [[nodiscard]] std::uint32_t all() const { return dram + home; }
    };
    From demanded;
    From predicted;  ///< in vain too
};

class ExpertCache {
  public:
    struct Shape {
        std::uint32_t layers = 1;        ///< with experts
        std::uint32_t count = 1;         ///< experts of a layer
        std::uint32_t topk = 1;          ///< of a token
        std::uint64_t host_experts = 0;  ///< that DRAM keeps, of all layers
    };
    ExpertCache(const ExpertCacheSpec& spec, const Shape& shape, std::uint64_t seed, const std::string& name);

    /// An iteration of so many tokens, layer by layer; good until the next.
    [[nodiscard]] const std::vector<LayerLoads>& step(std::uint64_t tokens);

    [[nodiscard]] std::uint64_t used() const { return used_; }            ///< experts, once a layer and iteration
    [[nodiscard]] std::uint64_t hits() const { return hits_; }            ///< of them on the devices before,
    [[nodiscard]] std::uint64_t predicted() const { return predicted_; }  ///< brought ahead,
    [[nodiscard]] std::uint64_t in_vain() const { return in_vain_; }      ///< and brought beside them for nothing

  private:
    void choose(std::uint64_t tokens);
    [[nodiscard]] std::uint32_t draw();
    void bring(std::uint32_t layer, std::uint32_t expert, LayerLoads& loads);
    /// Counts where an expert comes from; DRAM keeps it from now on.
    void take(std::uint32_t layer, std::uint32_t expert, LayerLoads::From& from);

    ExpertCacheSpec spec_;
    Shape shape_;
    RandomStream random_;
    std::vector<double> up_to_;      ///< popularity, summed; empty: all alike
    std::vector<TierCache> caches_;  ///< by layer
    TierCache dram_;
    std::vector<LayerLoads> loads_;
    std::vector<std::uint32_t> needed_, missing_;  ///< of a layer
    std::vector<std::uint64_t> mark_;              ///< by expert: the last layer that needed it,
    std::vector<std::uint64_t> token_mark_;        ///< and the last token
    std::uint64_t layer_stamp_ = 0, token_stamp_ = 0;
    std::uint64_t used_ = 0, hits_ = 0, predicted_ = 0, in_vain_ = 0;
};

}  // namespace orrery::serving
