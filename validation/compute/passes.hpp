#pragma once
// Ceilings of devices and times of whole passes, predicted from kernels alone; both go into `out` as well.

#include "sim/config/fields.hpp"
#include "tools/terminal/terminal.hpp"
#include "validation/scatter.hpp"

#include <map>
#include <string>
#include <vector>

namespace orrery::validation {

/// A line for each group: its points and what they err by.
void print_errors(const Terminal& terminal, const std::string& heading,
                  const std::map<std::string, std::vector<double>>& groups);

/// Measured ceilings (validation/compute/ceilings.csv) against what the models reach at best.
void validate_ceilings(const DataDirectory& data, const Terminal& terminal, Comparison& out);
/// Prompt and token times of served models (validation/compute/passes.csv): kernels and all-reduces of one pass, summed.
/// Nothing is fitted on these totals; what the host adds between kernels is not in the prediction.
void validate_passes(const DataDirectory& data, const Terminal& terminal, bool points, Comparison& out);
/// Sparse attention of a layer as a whole (validation/compute/modules.csv): its kernels, summed. Nothing is fitted on these.
void validate_modules(const DataDirectory& data, const Terminal& terminal, bool points, Comparison& out);

}  // namespace orrery::validation
