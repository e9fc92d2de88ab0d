#include "workloads/training/schedules/schedule.hpp"

namespace orrery::training {

// All forward passes, then all backward passes.
// Source: Huang et al., "GPipe", arXiv:1811.06965, section 2.3.
extern const PipelineSchedule kGPipeSchedule = {
    "gpipe",
    "GPipe: all forward passes, then all backward passes",
    false,
    false,  // 1F1B takes as long and holds less
    [](const PipelineShape&) { return std::string(); },
    [](const PipelineShape& shape) {
        return PipelineOrder(shape.stages, forward_then_in_turn(shape.micro_batches, shape.micro_batches,
                                                                [](bool backward, std::uint32_t i) {
                                                                    return Pass{forward_or(backward), 0, i};
                                                                }));
    },
    [](const PipelineShape& shape) { return std::vector<std::uint32_t>(shape.stages, shape.micro_batches); },
    [](const PipelineShape& shape) { return static_cast<double>(shape.stages - 1); }};

}  // namespace orrery::training
