#pragma once
// All that moves caches, adapters and swapped blocks to the replicas of a service.

#include "workloads/serving/transfer/adapter_loads.hpp"
#include "workloads/serving/transfer/kv_restores.hpp"
#include "workloads/serving/transfer/kv_transfers.hpp"
#include "workloads/serving/transfer/swap_ins.hpp"

namespace orrery::serving {

struct Transfers {
    /// All arguments outlive this.
    Transfers(const ServiceSpec& spec, Fleet& fleet, Routing& routing, RequestPlaces& places, RequestTimeline& timeline,
              ServiceResult& result)
        : kv(spec, fleet, routing.decoders, places, result),
          shared(spec, fleet, result),
          fetches(spec, fleet, shared, result),
          adapters(spec, fleet, fetches, timeline, result),
          restores(spec, fleet, result),
          swap_ins(spec, fleet, result) {}

    /// Sequences have left a replica: who waits for what they had there gets it.
    void make_room(std::uint32_t replica) {
        kv.make_room(replica);
        adapters.fill(replica);
    }
    /// A replica fails: what was under way to it or from it is lost. Returns sequences whose prompts were computed elsewhere.
    [[nodiscard]] std::vector<Sequence> fail(std::uint32_t replica) {
        fetches.fail(replica);
        restores.fail(replica);
        return kv.fail(replica);
    }
    /// The same, with what waits there for adapters and blocks.
    [[nodiscard]] std::vector<Sequence> lose(std::uint32_t replica) {
        adapters.fail(replica);
        swap_ins.fail(replica);
        return fail(replica);
    }

    KvTransfers kv;
    SharedCache shared;
    Fetches fetches;
    AdapterLoads adapters;
    KvRestores restores;
    SwapIns swap_ins;
};

}  // namespace orrery::serving
