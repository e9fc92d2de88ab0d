#pragma once
// A summary for people.

#include "sim/record/summary.hpp"
#include "tools/program/terminal.hpp"

namespace orrery {

/// A metric's value with its unit, short.
[[nodiscard]] std::string one_line(const Metric& metric);
void print_summary(const Terminal& terminal, const Summary& summary);

}  // namespace orrery
