#pragma once
// LoRA adapters and whole models: what they weigh, and which of them a replica's devices hold.
//
// Claims: the devices have slots for so many adapters, whose memory is set aside beside the weights. A request whose adapter has
// no slot waits for one that no request in work uses (of an LRU or LFU cache), and for the adapter to come from host
// memory; requests whose adapters are there pass it meanwhile.
// Scope: adapters beside attention's products, or beside those of dense feed-forwards too; not beside latent attention or experts. Whole
// models take the place of the base model's weights, which stay (a composition of experts with its router), one request at a time.
// Limits: adapters are of one rank and in 16 bits; tensor-parallel ranks repeat the factor on the unsplit side (as vLLM does).
// Sources: Hu et al., "LoRA", ICLR 2022; Sheng et al., "S-LoRA", MLSys 2024 (adapters in host memory); vLLM's `max_loras`
// (requests beyond it are passed over); Prabhakar et al., "SambaNova SN40L", arXiv:2405.07518 (composition of experts).
// Validated by tests/workloads/serving_adapters_test.cpp.

#include "sim/device/tier_cache.hpp"
#include "workloads/model/model_spec.hpp"

#include <unordered_set>

namespace orrery::serving {

/// Products that adapters stand beside: those of attention, or all dense ones.
enum class AdapterTargets { attention, all };

struct AdapterSpec {
    std::int64_t rank = 0;  ///< of the low-rank factors; 0: no adapters
    std::int64_t slots = 8;
    AdapterTargets targets = AdapterTargets::attention;
    Eviction eviction = Eviction::lru;
    bool whole = false;  ///< models as large as the served one; rank 0
};

/// Bytes of an adapter on one of `tensor` ranks, over `layers` of the model's layers.
[[nodiscard]] double adapter_bytes_per_rank(const ModelSpec& model, const AdapterSpec& adapters, std::int64_t tensor,
                                            std::int64_t layers);

/// The slots of a replica. Adapters are numbered from 1.
class AdapterSlots {
  public:
    explicit AdapterSlots(std::size_t slots, Eviction eviction = Eviction::lru) : slots_(slots), held_({}, eviction) {}

    /// full: no slot is free. here, coming: it has a slot. taken: it has one now, and has to be brought.
    enum class Answer { full, here, coming, taken };
    /// A sequence wants an adapter, and keeps its slot (unless full) until `unpin`.
    [[nodiscard]] Answer pin(std::uint32_t adapter);
    /// What was taken is here. Precondition: somebody keeps it.
    void loaded(std::uint32_t adapter);
    void unpin(std::uint32_t adapter);
    /// Adapters that have a slot.
    [[nodiscard]] std::size_t held() const { return held_.pinned() + held_.idle(); }
    /// Whether a new adapter can have a slot.
    [[nodiscard]] bool has_slot() const { return held_.pinned() < slots_; }

  private:
    std::size_t slots_;
    TierCache held_;
    std::unordered_set<std::uint32_t> coming_;  ///< only looked up
};

}  // namespace orrery::serving
