#pragma once
// Ceilings of devices and times of whole passes, predicted from kernels alone.

#include "sim/config/fields.hpp"
#include "tools/program/terminal.hpp"

namespace orrery {

/// Measured ceilings (validation/compute/ceilings.csv) against what the models reach at best.
void validate_ceilings(const DataDirectory& data, const Terminal& terminal);
/// Prompt and token times of served models (validation/compute/passes.csv): kernels and all-reduces of one pass, summed.
/// Nothing is fitted on these totals; what the host adds between kernels is not in the prediction.
void validate_passes(const DataDirectory& data, const Terminal& terminal, bool points);

}  // namespace orrery
