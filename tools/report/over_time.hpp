#pragma once
// What a serving run did over its time, for its report.

#include "sim/record/summary.hpp"

#include <string>

namespace orrery::report {

/// Charts as the JSON of a block of a page: requests that wait and run, cache blocks in use, requests finished per second.
/// Each point is the mean over a 120th of the run. Empty where the timeline has no requests.
[[nodiscard]] std::string over_time_block(const Timeline& timeline);

}  // namespace orrery::report
