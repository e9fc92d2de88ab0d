#pragma once
// Kernels beside collectives: prompts whose all-reduces hide behind the other half of their tokens, and kernels whose units are taken.

#include "sim/config/fields.hpp"
#include "tools/terminal/terminal.hpp"
#include "validation/scatter.hpp"

namespace orrery::validation {

/// Prompts of TokenWeave (validation/compute/prefill_overlap.csv), with its own kernels of norms and all-reduces (fused_kernels.csv) and
/// the device's of everything else: two halves of the tokens through the program of a pass (workloads/training/programs/pass_program.hpp). And
/// slowdowns of kernels (beside.csv) against the share of units that is left to them. Nothing is fitted on either.
void validate_beside(const DataDirectory& data, const Terminal& terminal, bool points, Comparison& out);

}  // namespace orrery::validation
