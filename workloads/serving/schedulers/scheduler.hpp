#pragma once
// Which sequences compute how many tokens in the next iteration: the policy of an engine replica.
//
// A scheduler sees the state between two iterations and fills the batch of the next one. An empty batch means that nothing can
// run now; the replica then waits for a request. Each policy is a small class in schedulers/.

#include "sim/config/policy.hpp"
#include "workloads/serving/engine/engine_state.hpp"

#include <functional>
#include <memory>
#include <string>

namespace orrery::outside {
class Policies;
}

namespace orrery::serving {

/// Where a policy from outside decides.
struct SchedulerPlace {
    outside::Policies& policies;
    std::uint32_t replica;
    std::function<SimTime()> now;
};

/// What a policy needs to differ from first come, first served, and what it leaves alone.
struct SchedulerNeeds {
    bool prefix_cache = false;  ///< it goes by what prompts have in common
    bool sessions = false;      ///< it goes by who sends a request
    bool swaps = false;         ///< it moves preempted blocks to host memory
    bool counts_tokens = true;  ///< its batches keep to a budget of tokens
    bool outside = false;       ///< its decisions come from outside: it must be attached before its first plan
};

class Scheduler {
  public:
    virtual ~Scheduler() = default;
    /// Fills `batch` (empty before), moving sequences between the queues of `state`.
    virtual void plan(EngineState& state, Batch& batch) = 0;
    /// An iteration has ended: its tokens are counted, and what has finished is still there.
    virtual void after(EngineState&, const Batch&) {}
    /// Whether room for the whole output is set aside at admission; for the whole prompt.
    [[nodiscard]] virtual bool takes_whole_outputs() const { return false; }
    [[nodiscard]] virtual bool takes_whole_prompts() const { return takes_whole_outputs(); }
    [[nodiscard]] virtual SchedulerNeeds needs() const { return {}; }
    /// Before its first plan.
    virtual void attach(const SchedulerPlace&) {}
    /// No more will happen. Throws ConfigError where a policy from outside has left requests.
    virtual void ended(const EngineState&) const {}
};

/// All policies, the default among them.
[[nodiscard]] const PolicyTable<Scheduler>& scheduler_table();

struct SchedulerSpec {
    PolicyChoice<Scheduler> policy{scheduler_table(), "chunked-prefill"};
    std::int64_t token_budget = 2048;
    std::int64_t max_sequences = 256;

    [[nodiscard]] SchedulerNeeds needs() const { return policy.make()->needs(); }
};
void describe(Fields& fields, SchedulerSpec& spec);

}  // namespace orrery::serving
