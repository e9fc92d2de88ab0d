#pragma once
// Which sequences compute how many tokens in the next iteration: the policy of an engine replica.
//
// A scheduler sees the state between two iterations and fills the batch of the next one. An empty batch means that nothing can
// run now; the replica then waits for a request. Each policy is a small class in schedulers/.

#include "sim/config/fields.hpp"
#include "workloads/serving/engine/sequence.hpp"

#include <memory>
#include <string>

namespace orrery {

class Scheduler {
  public:
    virtual ~Scheduler() = default;
    /// Fills `batch` (empty before), moving sequences between the queues of `state`.
    virtual void plan(EngineState& state, Batch& batch) = 0;
    /// An iteration has ended: its tokens are counted, and what has finished is still there.
    virtual void after(EngineState&, const Batch&) {}
};

enum class SchedulerKind {
    static_batch,
    orca,
    vllm_v0,
    chunked_prefill,
    sarathi,
    splitfuse,
    shortest_first,
    decode_heavy,
    fastserve,
    fair,
    in_flight
};
[[nodiscard]] const std::vector<std::string>& scheduler_names();

enum class Preemption { recompute, swap };

struct SchedulerSpec {
    SchedulerKind kind = SchedulerKind::chunked_prefill;
    std::int64_t token_budget = 2048;
    std::int64_t max_sequences = 256;
    Preemption preemption = Preemption::recompute;
    std::int64_t wait_iterations = 0;  ///< in_flight: prompts wait so many iterations for company ...
    double wait_share = 0;             ///< ... until they and the decodes fill this share of the token budget
    std::int64_t levels = 6;           ///< fastserve
    std::int64_t first_quantum = 64;   ///< fastserve: tokens that the highest level may compute; doubles a level
};
void describe(Fields& fields, SchedulerSpec& spec);

/// Throws nothing: every spec that `describe` accepts has a scheduler.
[[nodiscard]] std::unique_ptr<Scheduler> make_scheduler(const SchedulerSpec& spec);

}  // namespace orrery
