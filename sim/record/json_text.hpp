#pragma once
// Where a text is broken.

#include "sim/base/error.hpp"

#include <exception>
#include <string>
#include <string_view>

namespace orrery::record {

/// Something wrong with what stands `offset` bytes behind the start of a text, which is that of `file`.
[[nodiscard]] Diagnostic diagnostic_at(const std::string& file, std::string_view text, std::size_t offset,
                                       const std::string& problem);

/// What the parser says of broken JSON, at its line and column; `lines`: those of the file before the text that was parsed.
[[nodiscard]] Diagnostic json_problem(const std::string& file, const std::exception& problem, int lines = 0);

/// What is wrong with JSON whose values nest deeper than 64 levels, which copies and prints of its tree would go down by calls;
/// empty where they do not.
[[nodiscard]] std::string json_depth_problem(std::string_view text);
/// Throws ConfigError for such a text.
void require_shallow_json(std::string_view text, const std::string& file);

}  // namespace orrery::record
