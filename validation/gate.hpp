#pragma once
// Accuracy as a gate: the scores of a suite against committed limits.

#include "tools/terminal/terminal.hpp"
#include "validation/scatter.hpp"

#include "sim/config/data_directory.hpp"

namespace orrery::validation {

/// Suites of `orrery validate`.
[[nodiscard]] const std::vector<std::string>& suite_names();

/// Compares the scores of the suites with the limits of `file` (validation/thresholds.yaml by default), prints what is worse, and
/// says whether nothing is. A limit is a text such as "<= 6.80 %" or ">= 230". Throws ConfigError for a suite or a score that
/// there is not, for a limit without its unit, and for a score without a limit.
[[nodiscard]] bool within_limits(const std::vector<Comparison>& suites, const std::string& file,
                                 const Terminal& terminal);

/// The file of this installation.
[[nodiscard]] std::string limits_file(const DataDirectory& data);

}  // namespace orrery::validation
