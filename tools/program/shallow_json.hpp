#pragma once
// Whether JSON is so deep that what walks a value by recursion could run out of stack: looked at before it is parsed.

#include <cstddef>
#include <string>

namespace orrery::program {

constexpr std::size_t kDeepestJson = 64;  ///< levels that are read

/// Whether a text that may be JSON has more levels than are read.
[[nodiscard]] bool too_deep(const std::string& text);

}  // namespace orrery::program
