#pragma once
// What a layer keeps of a micro-batch for its backward pass, as a sum over its operations (model/layer_program.hpp).
//
// Claims: of every operation what its backward pass needs, in 16 bits or, where the software fuses casts, in the format of the product
// behind it. For a whole layer these are equations 1 to 6 of Korthikanti et al., arXiv:2205.05198. Not kept is what the plan's
// recomputation makes again, and what frozen weights do not need. Routed experts keep the rows of the busiest rank.
// Limits: fused attention's sums of rows (4 B per token and head) are left out.

#include "workloads/training/plan/spec.hpp"

namespace orrery::training {

/// B on a rank.
struct LayerBytes {
    double kept = 0;
    double again = 0;  ///< made again in front of the backward pass, in memory while it runs
};
[[nodiscard]] LayerBytes layer_bytes(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software,
                                     LayerKind kind);

}  // namespace orrery::training
