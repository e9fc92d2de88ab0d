#pragma once
// A summary for people.

#include "sim/record/summary.hpp"
#include "tools/terminal/terminal.hpp"

namespace orrery::program {

/// A metric's value with its unit, short.
[[nodiscard]] std::string one_line(const Metric& metric);

/// Ends of the 90 % interval for people, or nothing where a metric has none.
[[nodiscard]] std::string interval_text(const Metric& metric);
/// "ttft_s.p99 is 2.3 s, expected < 2 s".
[[nodiscard]] std::string expectation_text(const ExpectationOutcome& outcome);
/// A line with a tick or a cross for each expectation; nothing where there are none.
void print_expectations(const Summary& summary);
void print_summary(const Terminal& terminal, const Summary& summary);

}  // namespace orrery::program
