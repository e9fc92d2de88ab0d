#pragma once
// What happened in a serving run over time, as reports and traces draw it.

#include "sim/record/summary.hpp"
#include "workloads/serving/metrics/outcome.hpp"

namespace orrery::driver {

/// Iterations of the replicas and times that they are down as spans, requests and KV transfers as lifelines, batches, caches, adapters
/// and queues as counters; times in us.
[[nodiscard]] Timeline draw(const ServiceResult& result);

}  // namespace orrery::driver
