#include "workloads/training/schedules/schedule.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery {

extern const PipelineSchedule kGPipeSchedule;
extern const PipelineSchedule kOneForwardOneBackward;
extern const PipelineSchedule kInterleavedSchedule;
extern const PipelineSchedule kBreadthFirstSchedule;

const std::vector<const PipelineSchedule*>& schedule_table() {
    static const std::vector<const PipelineSchedule*> kTable = {
        &kGPipeSchedule,
        &kOneForwardOneBackward,
        &kInterleavedSchedule,
        &kBreadthFirstSchedule,
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
    std::uint32_t now = 0;
    std::uint32_t peak = 0;
    for (const Pass& pass : passes) {
        now = pass.backward ? now - 1 : now + 1;
        peak = std::max(peak, now);
    }
    return peak;
}

}  // namespace orrery
