#pragma once
// How times, or what is made of them, are spread: what a summary says of many messages.

#include "sim/record/summary.hpp"

namespace orrery::driver {

/// Adds `name`.mean, .p50, .p95, .p99 and .max. Precondition: there are values.
void add_spread(const std::string& name, std::vector<double> values, const char* unit, Summary& summary);

}  // namespace orrery::driver
