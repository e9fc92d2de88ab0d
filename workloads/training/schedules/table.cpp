#include "workloads/training/schedules/schedule.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::inline training {

extern const PipelineSchedule kGPipeSchedule;
extern const PipelineSchedule kOneForwardOneBackward;
extern const PipelineSchedule kInterleavedSchedule;
extern const PipelineSchedule kBreadthFirstSchedule;
extern const PipelineSchedule kZeroBubbleH1;
extern const PipelineSchedule kZeroBubbleH2;

const std::vector<const PipelineSchedule*>& schedule_table() {
    static const std::vector<const PipelineSchedule*> kTable = {
        &kGPipeSchedule,        &kOneForwardOneBackward, &kInterleavedSchedule,
        &kBreadthFirstSchedule, &kZeroBubbleH1,          &kZeroBubbleH2,
    };
    return kTable;
}

const PipelineSchedule& schedule_named(const std::string& name) {
    const auto& table = schedule_table();
    const auto row = std::find_if(table.begin(), table.end(), [&](const auto* one) { return one->name == name; });
    ORRERY_ASSERT(row != table.end());
    return **row;
}

const PipelineSchedule* default_schedule() {
    return &kOneForwardOneBackward;
}

std::uint32_t peak_in_flight(const std::vector<Pass>& passes) {
    // Activations are kept until the gradients of the weights are there.
    const bool splits = std::any_of(passes.begin(), passes.end(), [](const Pass& pass) { return pass.weights; });
    std::uint32_t now = 0;
    std::uint32_t peak = 0;
    for (const Pass& pass : passes) {
        now = !pass.backward ? now + 1 : pass.weights == splits ? now - 1 : now;
        peak = std::max(peak, now);
    }
    return peak;
}

}  // namespace orrery::inline training
