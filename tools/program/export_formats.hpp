#pragma once
// The formats of `orrery export`, for its help and its check.

#include "tools/program/command_line.hpp"

#include <vector>

namespace orrery::program {

[[nodiscard]] const std::vector<ChoiceSpec>& export_formats();

}  // namespace orrery::program
