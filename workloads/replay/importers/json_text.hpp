#pragma once
// Where JSON is broken.

#include "sim/base/error.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace orrery::inline replay {

/// What the parser says of broken JSON, at its line and column; `lines`: those of the file before the text that was parsed.
[[nodiscard]] Diagnostic json_problem(const std::string& file, const nlohmann::json::exception& problem, int lines = 0);
/// Parses a whole file. Throws ConfigError with the place of what is wrong.
[[nodiscard]] nlohmann::json parse_json(const std::string& text, const std::string& file);

}  // namespace orrery::inline replay
