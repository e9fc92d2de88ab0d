#pragma once
// One JSON Schema for scenarios of every kind, for editors: what kinds share stands once, under "$defs".
//
// Validated by tests/tools/habits_test.cpp: expanded again, it is the schema of each kind.

#include "sim/config/data_directory.hpp"

#include <string>

namespace orrery::reference {

/// JSON Schema (draft 2020-12), indented by one space, with a last newline. The `kind` of a scenario chooses its part.
[[nodiscard]] std::string schema_of_all_kinds(const DataDirectory& data);

}  // namespace orrery::reference
