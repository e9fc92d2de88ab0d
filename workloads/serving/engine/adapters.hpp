#pragma once
// LoRA adapters: what they weigh, and which of them a replica's devices hold.
//
// Claims: the devices have slots for so many adapters, whose memory is set aside beside the weights. A request whose adapter has
// no slot waits for one that no request in work uses, the one unused longest (LRU), and for the adapter to come from host
// memory; requests whose adapters are there pass it meanwhile.
// Scope: adapters beside attention's products, or beside those of dense feed-forwards too; not beside latent attention or experts.
// Limits: adapters are of one rank and in 16 bits; tensor-parallel ranks repeat the factor on the unsplit side (as vLLM does).
// Sources: Hu et al., "LoRA", ICLR 2022; Sheng et al., "S-LoRA", MLSys 2024 (adapters in host memory); vLLM's `max_loras`
// (requests beyond it are passed over).
// Validated by tests/workloads/serving_adapters_test.cpp.

#include "workloads/model/model_spec.hpp"

#include <map>
#include <unordered_map>

namespace orrery::inline serving {

/// Products that adapters stand beside: those of attention, or all dense ones.
enum class AdapterTargets { attention, all };

struct AdapterSpec {
    std::int64_t rank = 0;  ///< of the low-rank factors; 0: no adapters
    std::int64_t slots = 8;
    AdapterTargets targets = AdapterTargets::attention;
};

/// Bytes of an adapter on one of `tensor` ranks, over `layers` of the model's layers.
[[nodiscard]] double adapter_bytes_per_rank(const ModelSpec& model, const AdapterSpec& adapters, std::int64_t tensor,
                                            std::int64_t layers);

/// The slots of a replica. Adapters are numbered from 1.
class AdapterSlots {
  public:
    explicit AdapterSlots(std::size_t slots) : slots_(slots) {}

    /// full: no slot is free. here, coming: it has a slot. taken: it has one now, and has to be brought.
    enum class Answer { full, here, coming, taken };
    /// A sequence wants an adapter, and keeps its slot (unless full) until `unpin`.
    [[nodiscard]] Answer pin(std::uint32_t adapter);
    /// What was taken is here. Precondition: somebody keeps it.
    void loaded(std::uint32_t adapter);
    void unpin(std::uint32_t adapter);
    /// Adapters that have a slot.
    [[nodiscard]] std::size_t held() const { return held_.size(); }
    /// Whether a new adapter can have a slot.
    [[nodiscard]] bool has_slot() const { return held_.size() < slots_ || !idle_.empty(); }

  private:
    struct Slot {
        std::uint32_t users = 0;
        bool here = false;
        std::uint64_t released = 0;  ///< key in `idle_`, while nobody uses it
    };
    std::size_t slots_;
    std::unordered_map<std::uint32_t, Slot> held_;  ///< only looked up
    std::map<std::uint64_t, std::uint32_t> idle_;   ///< adapters that nobody uses, unused longest first
    std::uint64_t releases_ = 0;
};

}  // namespace orrery::inline serving
