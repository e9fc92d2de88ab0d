#include "workloads/training/schedules/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::training {

namespace {

// Forward passes go through groups of `stages` micro-batches chunk by chunk; backward passes the same, last chunk first.
Pass interleaved_pass(const PipelineShape& shape, bool backward, std::uint32_t index) {
    if (shape.chunks == 1) {
        return Pass{forward_or(backward), 0, index};
    }
    const std::uint32_t group = index / (shape.stages * shape.chunks);
    const std::uint32_t within = index % (shape.stages * shape.chunks);
    const std::uint32_t chunk = within / shape.stages;
    return Pass{forward_or(backward), backward ? shape.chunks - 1 - chunk : chunk,
                group * shape.stages + within % shape.stages};
}

std::uint32_t interleaved_warmup(const PipelineShape& shape, std::uint32_t stage) {
    const std::uint32_t behind = shape.stages - stage - 1;
    return std::min(shape.chunks == 1 ? behind : behind * 2 + (shape.chunks - 1) * shape.stages,
                    shape.micro_batches * shape.chunks);
}

}  // namespace

// 1F1B over several chunks a stage.
// Source: Narayanan et al., SC21, arXiv:2104.04473, section 2.2.2.
extern const PipelineSchedule kInterleavedSchedule = {
    "interleaved",
    "1F1B over several model chunks per stage",
    true,
    true,
    [](const PipelineShape& shape) -> std::string {
        if (shape.chunks > 1 && shape.stages == 1) {
            return "an interleaved schedule needs at least two pipeline stages";
        }
        if (shape.chunks > 1 && shape.micro_batches % shape.stages != 0) {
            return fmt::format("an interleaved schedule needs micro-batches ({}) in multiples of the stages ({})",
                               shape.micro_batches, shape.stages);
        }
        return "";
    },
    [](const PipelineShape& shape) {
        return of_stages(shape, [&](std::uint32_t stage) {
            return forward_then_in_turn(
                interleaved_warmup(shape, stage), shape.micro_batches * shape.chunks,
                [&](bool backward, std::uint32_t i) { return interleaved_pass(shape, backward, i); });
        });
    },
    [](const PipelineShape& shape) {
        return of_stages(shape, [&](std::uint32_t stage) {
            return std::min(interleaved_warmup(shape, stage) + 1, shape.micro_batches * shape.chunks);
        });
    },
    [](const PipelineShape& shape) { return static_cast<double>(shape.stages - 1) / shape.chunks; }};

}  // namespace orrery::training
