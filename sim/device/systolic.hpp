#pragma once
// Cycles that a matrix product takes on systolic arrays.
//
// Claims: a product is cut into folds, one for each pair of tiles of its two stationary dimensions. The dimensions that stay are
// k x n with weights stationary, m x n with outputs, k x m with inputs; the third one streams. A fold fills the array, streams, and
// drains it: rows + columns + stream - 2 cycles, and with weights or inputs stationary `rows` cycles more to load what stays.
// How much of this folds hide from one another is a property of the array (Folds). Equal arrays share the folds of a product, and where
// the operand that streams needs no summing up (weights or inputs stationary) also its stream: arrays that hold the same tile take a part
// of the rows each. An array that can be stretched is as much longer on one side as it is shorter on the other. Of these ways the fastest.
// Weights that are pruned n of m along the sum leave as much less of it to the array (`density`).
// Scope: dense products; convolutions as their im2col product.
// Limits: operands are there when they are needed (models/unit_model.hpp holds the cycles against the memories).
// Sources: Samajdar et al., "SCALE-Sim: Systolic CNN Accelerator Simulator", arXiv:1811.02883, section III; Jouppi et al.,
// "In-Datacenter Performance Analysis of a Tensor Processing Unit", ISCA 2017, section 2 (weights loaded behind the tile before).
// Validated by `orrery validate devices`: 120 products of SCALE-Sim v3 to the cycle, one of them with pruned weights.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::device {

/// Which operand stays in the array.
enum class Dataflow { weights, outputs, inputs };
[[nodiscard]] const std::vector<std::string>& dataflow_names();

/// What folds hide from one another: nothing, the loading of what stays, or filling and draining as well, so that streams follow each
/// other without a gap. What is loaded behind a stream takes at least the `rows` cycles that it takes alone.
enum class Folds { separate, preloaded, streamed };
[[nodiscard]] const std::vector<std::string>& folds_names();

struct SystolicArrays {
    std::int64_t rows = 128, columns = 128, count = 1;
    Dataflow dataflow = Dataflow::weights;
    Folds folds = Folds::separate;
    double density = 1;        ///< share of the weights along the sum that are left, where the array skips pruned ones
    std::int64_t stretch = 1;  ///< times that one side may be as long, and the other as short; a power of two
};

/// Folds of C[m,n] = A[m,k] B[k,n]; sizes are at least 0, and a part of a tile counts as a whole one.
[[nodiscard]] double folds_of(const SystolicArrays& arrays, double m, double n, double k);

/// Cycles until the last output of `batch` such products has left an array. 0 for empty products.
[[nodiscard]] double systolic_cycles(const SystolicArrays& arrays, double m, double n, double k, double batch = 1);

}  // namespace orrery::device
