#pragma once
// When replicas of one phase do the work of the other: with long queues decode replicas compute prompts too, and with full caches
// prefill replicas keep what they began.
//
// Source: Patel et al., "Splitwise", ISCA 2024 (the mixed pool).
// Validated by tests/workloads/serving_phases_test.cpp.

#include "workloads/serving/transfer/kv_transfers.hpp"

namespace orrery::serving {

class Mixing {
  public:
    /// All arguments outlive this.
    Mixing(const MixingSpec& spec, Fleet& fleet, const Routes& decoders, const KvTransfers& kv_transfers)
        : spec_(spec), fleet_(fleet), decoders_(decoders), kv_transfers_(kv_transfers) {}

    /// The replica that computes the prompt of a request that was to go to `chosen`: with long queues a decode replica that
    /// computes prompts already, else the one with the most room.
    [[nodiscard]] std::uint32_t for_prompt(std::uint32_t chosen, const Request& request) const;
    /// A prompt is done on a prefill replica: it keeps a sequence that no decode replica has room for, when it has room for
    /// all of it.
    [[nodiscard]] bool keeps(std::uint32_t replica, std::uint32_t sequence);

  private:
    const MixingSpec& spec_;
    Fleet& fleet_;
    const Routes& decoders_;
    const KvTransfers& kv_transfers_;
};

}  // namespace orrery::serving
