#pragma once
// The axes of a sweep file: lists, ranges, zip groups, random and Latin hypercube samples, seeds.

#include "tools/sweep/sweep_spec.hpp"
#include "tools/sweep/sweep_tree.hpp"

namespace orrery::sweep {

/// Reads axes, zip, sample and seeds. Stops, with an error, before the points become more than a sweep may have.
void read_sweep_axes(SweepTree& tree, std::vector<SweepAxis>& axes);

}  // namespace orrery::sweep
