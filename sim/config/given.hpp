#pragma once
// What the reader of fields leaves for their writer.

#include "sim/base/namespaces.hpp"

namespace orrery::config {

/// How a value is known (Sourced::how) that a scenario gives without a source of its own: the reader puts the line it stands on.
inline constexpr const char* kGivenInScenario = "scenario";

}  // namespace orrery::config
