#pragma once
// What a run will take of this machine, before it takes it.
//
// Claims: counts what is simulated (packets over links, messages, operations, requests) from the scenario alone, times what each
// takes on one core (README.md, Speed). Scope: to tell seconds from hours and megabytes from more than there is; within a factor
// of three for what folds as expected and is not congested. Limits: files are counted by their size; sums over the jobs of a
// cluster are those of the jobs alone. Validated by tests/tools/hostile_input_test.cpp.

#include "tools/driver/scenario.hpp"

#include <string>

namespace orrery::inline driver {

struct RunCost {
    double seconds = 0;
    double bytes = 0;  ///< of memory at the peak
    std::string what;  ///< "2.7e+08 packet-hops"
};

[[nodiscard]] RunCost expected_cost(const Scenario& scenario);

// For the rows of the kinds.
[[nodiscard]] RunCost cost_of_training(const Scenario& scenario);
[[nodiscard]] RunCost cost_of_collective(const Scenario& scenario);
[[nodiscard]] RunCost cost_of_traffic(const Scenario& scenario);
[[nodiscard]] RunCost cost_of_replay(const Scenario& scenario);
[[nodiscard]] RunCost cost_of_serving(const Scenario& scenario);
[[nodiscard]] RunCost cost_of_jobs(const Scenario& scenario);

}  // namespace orrery::inline driver
