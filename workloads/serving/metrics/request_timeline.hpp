#pragma once
// Parts of requests' lives for a timeline: waiting, for an adapter, prefill and decode, one after another without gaps.
//
// What a request does between two of its iterations that do not follow each other at once is waiting: in a queue, preempted,
// behind the prompts of others, while its cache travels.
// Limits: the first kMostLifeRecords parts of a run are kept.

#include "workloads/serving/engine/engine_state.hpp"
#include "workloads/serving/metrics/outcome.hpp"

#include <unordered_map>

namespace orrery::serving {

class RequestTimeline {
  public:
    /// The result outlives this. `wanted`: otherwise nothing is kept.
    RequestTimeline(bool wanted, ServiceResult& result) : wanted_(wanted), result_(result) {}
    /// A sequence that has come to a replica waits there for its adapter ...
    void adapter_wanted(std::uint32_t replica, const Sequence& sequence, SimTime now);
    /// ... which is here.
    void adapter_here(const Sequence& sequence, SimTime now);
    void batch_starts(std::uint32_t replica, const EngineState& engine, const Batch& batch, SimTime now);
    void batch_ends(const EngineState& engine, const Batch& batch, SimTime now);
    /// A request on a replica is accounted for.
    void end(std::uint32_t replica, const Sequence& sequence, SimTime now);

  private:
    struct Life {
        std::uint32_t replica = 0;
        std::uint32_t adapter = 0;
        LifePhase phase = LifePhase::waiting;
        SimTime start, until;  ///< of the part that it is in
        bool goes_on = false;  ///< it is still in it
    };
    void keep(std::uint64_t request, const Life& life);
    /// Ends the part that a request is in, and the wait after it; the next one begins now.
    void change(std::uint32_t replica, const Sequence& sequence, LifePhase phase, SimTime now);

    bool wanted_;
    ServiceResult& result_;
    std::unordered_map<std::uint64_t, Life> lives_;  ///< by request; only looked up
};

}  // namespace orrery::serving
