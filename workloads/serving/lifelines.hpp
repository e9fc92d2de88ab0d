#pragma once
// Parts of requests' lives for a timeline: waiting, prefill and decode, one after another without gaps.
//
// What a request does between two of its iterations that do not follow each other at once is waiting: in a queue, preempted,
// behind the prompts of others, while its cache or adapter travels.
// Limits: the first kMostLifeRecords parts of a run are kept.

#include "workloads/serving/fleet.hpp"

#include <unordered_map>

namespace orrery {

class Lifelines {
  public:
    /// Both outlive this.
    Lifelines(const Fleet& fleet, ServiceResult& result) : fleet_(fleet), result_(result) {}
    void batch_starts(std::uint32_t replica, const Batch& batch, SimTime now);
    void batch_ends(std::uint32_t replica, const Batch& batch, SimTime now);
    /// A request has been answered, or its client has gone.
    void end(std::uint64_t request);

  private:
    struct Life {
        std::uint32_t replica = 0;
        LifePhase phase = LifePhase::waiting;
        SimTime start, until;  ///< of the part that it is in
    };
    void keep(std::uint64_t request, const Life& life);

    const Fleet& fleet_;
    ServiceResult& result_;
    std::unordered_map<std::uint64_t, Life> lives_;  ///< by request; only looked up
};

}  // namespace orrery
