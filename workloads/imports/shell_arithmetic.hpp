#pragma once
// Whole numbers in `$((...))` of a shell: sums, products, comparisons and `a ? b : c`.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace orrery::imports {

/// `lookup` gives the text of a variable; null where it has none. Nothing for what is no such expression, divides by zero, leaves 64
/// bits or nests deeper than 64 levels.
[[nodiscard]] std::optional<std::int64_t> shell_arithmetic(
    const std::string& text, const std::function<const std::string*(const std::string&)>& lookup);

}  // namespace orrery::imports
