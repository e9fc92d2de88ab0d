#include "workloads/serving/fleet/replica.hpp"

#include <algorithm>

namespace orrery::serving {

Replica::Replica(const PoolSpec& its_pool, std::size_t number, std::uint32_t gpu)
    : pool(its_pool),
      pool_number(number),
      state(its_pool.limits),
      scheduler(its_pool.scheduler.policy.make()),
      first_gpu(gpu),
      stages(its_pool.cost.size()) {}

std::uint64_t Replica::room_of(const Sequence& sequence) const {
    // Policies that set the whole output aside do so before the cache comes.
    const bool whole = scheduler->takes_whole_outputs();
    const std::uint32_t next = std::max(1U, sequence.generated) + state.limits().draft_tokens;
    return std::uint64_t{sequence.prompt} + (whole ? sequence.output : std::min(next, sequence.output));
}

SimTime Replica::calls_time(std::uint64_t copies, double bytes) const {
    const SwapSpec& swap = pool.swap;
    const double calls = static_cast<double>(copies) * swap.calls;
    if (swap.call_s <= 0 || calls <= 0) {
        return {};
    }
    const double last = pool.host_bandwidth > 0 ? bytes / calls / pool.host_bandwidth : 0;
    return SimTime::from_seconds(calls * swap.call_s + last);
}

}  // namespace orrery::serving
