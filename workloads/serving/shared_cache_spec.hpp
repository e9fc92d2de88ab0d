#pragma once
// What a scenario says of prefixes that replicas share: a store beside them, and blocks that they take from each other
// (transfer/shared_cache.hpp).

#include "sim/config/fields.hpp"
#include "sim/device/tier_cache.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::serving {

/// When blocks go to a store: as soon as they are computed, or when their replica drops them.
enum class StoreWrite { through, back };
/// Which blocks that are elsewhere a replica brings: all, those that come sooner than they are computed, or none.
enum class PullRule { always, faster, never };

struct SharedCacheSpec {
    bool given = false;
    double capacity = 0;     ///< B of a store; 0: there is none
    double bandwidth = 0;    ///< B/s of the store each way, for all replicas together; 0: it takes no time
    std::int64_t node = -1;  ///< of the cluster, in whose memory the store is; -1: outside, on a pipe of its own
    StoreWrite write = StoreWrite::through;
    Eviction eviction = Eviction::lru;
    bool peers = false;  ///< replicas take blocks from each other
    double latency = 0;  ///< s before the first byte of a transfer
    PullRule pull = PullRule::always;
};
void describe(Fields& fields, SharedCacheSpec& spec);
/// What does not go together, or changes nothing as it is; `replicas`: of all pools. Empty: fine.
[[nodiscard]] std::vector<std::string> problems_of(const SharedCacheSpec& spec, std::int64_t replicas);

}  // namespace orrery::serving
