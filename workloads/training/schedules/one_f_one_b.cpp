#include "workloads/training/schedules/schedule.hpp"

#include <algorithm>

namespace orrery::inline training {

// As many forward passes as there are stages behind, then one forward and one backward pass in turn.
// Source: Narayanan et al., SC21, arXiv:2104.04473, section 2.2.1 (PipeDream-Flush).
extern const PipelineSchedule kOneForwardOneBackward = {
    "1f1b",
    "one forward and one backward pass in turn",
    false,
    true,
    [](const PipelineShape&) { return std::string(); },
    [](const PipelineShape& shape, std::uint32_t stage) {
        return forward_then_in_turn(std::min(shape.stages - stage - 1, shape.micro_batches), shape.micro_batches,
                                    [](bool backward, std::uint32_t i) {
                                        return Pass{backward, 0, i};
                                    });
    },
    [](const PipelineShape& shape, std::uint32_t stage) { return std::min(shape.stages - stage, shape.micro_batches); },
    [](const PipelineShape& shape) { return static_cast<double>(shape.stages - 1); }};

}  // namespace orrery::inline training
