#pragma once
// How batches of replicas are put together and go through pipeline stages.
//
// Claims: a replica plans a batch whenever its first stage is free and fewer batches than stages are under way; a sequence
// is in at most one of them. Each stage runs one batch at a time, in the order in which they come, and sends the hidden
// states of the batch's tokens to the next stage over the fabric. Bubbles follow: stages wait for batches of unequal cost,
// and a batch that takes every running sequence leaves nothing for the next one. An engine that plans ahead puts a batch
// together when the one before it starts: a request that comes while a batch runs misses the next one too, unless there is
// none without it. Blocks that are swapped pass the link to the host before the batch computes, but for those that come back
// beside it (transfer/swap_ins.hpp).
// Limits: hidden states are sent whole by slices of the tensor-parallel ranks; joining the slices takes no time. A batch that
// is planned ahead has the places and blocks of sequences that end with the one before it, where engines learn that later.
// Sources: the batch queue of vLLM 1 (as many batches as stages, no sequence in two; one more with asynchronous scheduling:
// core.py, step_with_batch_queue); TensorRT-LLM, py_executor.py (_executor_loop_overlap) and SGLang, scheduler.py
// (event_loop_overlap): both look into their queue and launch a batch before they wait for the one that runs; Agrawal et al.,
// "Sarathi-Serve", OSDI 2024 (bubbles of uneven batches).
// Validated by tests/workloads/serving_test.cpp.

#include "workloads/serving/cluster/generation.hpp"
#include "workloads/serving/cost/step_cost.hpp"
#include "workloads/serving/transfer/expert_loads.hpp"
#include "workloads/serving/transfer/transfers.hpp"

namespace orrery::serving {

class Pipelines final : public FleetPart {
  public:
    /// All arguments outlive this. `experts`: null where all experts are on the devices.
    Pipelines(const ServiceSpec& spec, const ServiceHooks& hooks, Fleet& fleet, Transfers& transfers,
              ExpertLoads* experts, Generation& generation, RequestTimeline& timeline, ServiceResult& result);
    void on_done(std::uint64_t token, Dispatcher& dispatcher) override;
    /// A replica computes no more; what was under way is lost.
    void stop(std::uint32_t index);

  private:
    // In the order in which what ends together on one link is told.
    enum class What : std::uint8_t { stage, activation, swap, background };
    [[nodiscard]] static std::uint64_t token(What what, std::uint32_t replica, std::uint32_t entry = 0) {
        return (std::uint64_t{static_cast<std::uint8_t>(what)} << 56U) | (std::uint64_t{entry} << 32U) | replica;
    }
    void fetch_waiting(std::uint32_t index);
    static void plan(Replica& replica, Batch& batch);
    void woken(std::uint32_t index);
    [[nodiscard]] bool launch(std::uint32_t index);
    void swap(std::uint32_t index, std::uint32_t entry);
    void enter(std::uint32_t index, std::uint32_t entry);
    [[nodiscard]] StepWork impaired_work(const Replica& replica, const InFlightBatch& entry) const;
    void spill(std::uint32_t index);
    [[nodiscard]] bool measured() const;
    void leave(std::uint32_t index, std::uint32_t entry);
    void end(std::uint32_t index, std::uint32_t entry);

    const ServiceHooks& hooks_;
    KvTransfers& kv_transfers_;
    SwapIns& swap_ins_;
    Fetches& fetches_;
    ExpertLoads* experts_;
    Generation& generation_;
    RequestTimeline& timeline_;
};

}  // namespace orrery::serving
