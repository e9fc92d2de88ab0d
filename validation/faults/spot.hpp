#pragma once
// Logged pools of spot machines, and Bamboo's jobs on them.

#include "validation/validate.hpp"

namespace orrery::validation {

/// Prints what the reader of traces sees of logged pools beside what was counted in them, and the throughput and its cost of jobs with
/// published steps. `directory`: of the public profiles; without it a line says what is left out.
void print_spot(const DataDirectory& data, const std::string& directory, const Terminal& terminal, Comparison& out);

}  // namespace orrery::validation
