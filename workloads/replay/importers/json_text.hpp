#pragma once
// Where JSON is broken.

#include "sim/base/error.hpp"

#include <exception>
#include <string>

namespace orrery::inline replay {

/// What the parser says of broken JSON, at its line and column; `lines`: those of the file before the text that was parsed.
[[nodiscard]] Diagnostic json_problem(const std::string& file, const std::exception& problem, int lines = 0);

}  // namespace orrery::inline replay
