#pragma once
// The key of a scenario that is no field, as its keys are the names of metrics: `expect` (sim/record/expectation.hpp).

#include "sim/base/namespaces.hpp"

namespace orrery::driver {

inline constexpr const char* kExpect = "expect";
inline constexpr const char* kExpectDoc =
    "bounds of metrics of the run, such as ttft_s.p99: \"< 2 s\"; exit code 1 when one is not kept";

}  // namespace orrery::driver
