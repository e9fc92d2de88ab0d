#include "workloads/collective/algorithms/algorithm.hpp"

namespace orrery {

extern const CollectiveAlgorithm kDirectAlgorithm = {
    "direct", "every rank to every other at once", nullptr,
    [](const CollectiveSpec&, double ranks, double) { return 2 * ranks * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        if (spec.op == CollectiveOp::all_reduce) {
            throw InfeasibleError("algorithm direct serves all-to-all, all-gather and reduce-scatter");
        }
        for (std::uint32_t i = 0; i < ranks; ++i) {
            for (std::uint32_t k = 1; k < ranks; ++k) {
                builder.add(i, (i + k) % ranks, spec.bytes / ranks);
            }
        }
    }};

}  // namespace orrery
