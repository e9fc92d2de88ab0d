#include "workloads/training/schedules/schedule.hpp"

#include <algorithm>

namespace orrery::training {

// All micro-batches of a chunk before the next chunk, forward and then backward (depth last): the gradients of a chunk are final,
// and their reduction starts, as soon as its last micro-batch is done, a chunk's passes before those of the next chunk are. It
// holds the activations of everything. With one chunk it is GPipe. Where a chunk has fewer micro-batches than there are stages,
// each chunk waits for the pipeline's far end.
// Source: Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023, arXiv:2211.05953, section 4.
extern const PipelineSchedule kBreadthFirstSchedule = {
    "breadth-first",
    "breadth-first order: all micro-batches of a chunk before the next chunk",
    true,
    false,  // few libraries run it
    [](const PipelineShape& shape) {
        return std::string(shape.chunks > 1 && shape.stages == 1
                               ? "a breadth-first schedule of several chunks needs at least two pipeline stages"
                               : "");
    },
    [](const PipelineShape& shape) {
        const std::uint32_t total = shape.micro_batches * shape.chunks;
        const auto passes = forward_then_in_turn(total, total, [&](bool backward, std::uint32_t i) {
            const std::uint32_t chunk = i / shape.micro_batches;
            return Pass{forward_or(backward), backward ? shape.chunks - 1 - chunk : chunk, i % shape.micro_batches};
        });
        return PipelineOrder(shape.stages, passes);
    },
    [](const PipelineShape& shape) {
        return std::vector<std::uint32_t>(shape.stages, shape.micro_batches * shape.chunks);
    },
    [](const PipelineShape& shape) {
        const std::uint32_t waits = std::max(shape.stages, shape.micro_batches) - shape.micro_batches;
        return static_cast<double>(shape.stages - 1 + (shape.chunks - 1) * waits) / shape.chunks;
    }};

}  // namespace orrery::training
