#pragma once
// Where the time of a run goes, by kind of scenario: the parts of an explanation that need no second run.

#include "sim/network/resource_kind.hpp"
#include "tools/driver/run.hpp"
#include "tools/explain/explain.hpp"

namespace orrery::explain {

/// Critical path, hidden transfers, kernels by name and use of links of a training run.
void explain_training(const Scenario& scenario, ModelCache& models, const RunOutput& base, Explanation& out);

/// The chain of messages that the last one of a collective to arrive waited for, and what happened to that one. `base` was run
/// with `messages`; rings too long to keep are explained by their slowest pair of neighbours.
void explain_collective(const Scenario& scenario, const RunOutput& base, Explanation& out);

/// What happened to the slowest message of traffic. `base` was run with `messages`.
void explain_traffic(const Scenario& scenario, const RunOutput& base, Explanation& out);

/// Critical path of a replay by kind of operation and stream, and the operations with most time on it.
void explain_replay(const RunOutput& base, Explanation& out);

/// Where the time of requests goes and how their latencies are distributed, by running `scenario` once more; `base` is its summary.
void explain_requests(const Scenario& scenario, ModelCache& models, const Summary& base, Explanation& out);

}  // namespace orrery::explain
