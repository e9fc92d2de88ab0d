#include "workloads/training/schedules/schedule.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::training {

extern const PipelineSchedule kGPipeSchedule;
extern const PipelineSchedule kOneForwardOneBackward;
extern const PipelineSchedule kInterleavedSchedule;
extern const PipelineSchedule kBreadthFirstSchedule;
extern const PipelineSchedule kZeroBubbleH1;
extern const PipelineSchedule kZeroBubbleH2;
extern const PipelineSchedule kSearchedSchedule;
extern const PipelineSchedule kZeroBubbleV;
extern const PipelineSchedule kVHalf;
extern const PipelineSchedule kVMin;
extern const PipelineSchedule kHanayo;
extern const PipelineSchedule kDualPipe;
extern const PipelineSchedule kDualPipeV;

const std::vector<const PipelineSchedule*>& schedule_table() {
    static const std::vector<const PipelineSchedule*> kTable = {
        &kGPipeSchedule,
        &kOneForwardOneBackward,
        &kInterleavedSchedule,
        &kBreadthFirstSchedule,
        &kZeroBubbleH1,
        &kZeroBubbleH2,
        &kSearchedSchedule,
        &kZeroBubbleV,
        &kVHalf,
        &kVMin,
        &kHanayo,
        &kDualPipe,
        &kDualPipeV,
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

std::uint32_t parts_of(StageMap map, const PipelineShape& shape) {
    return map == StageMap::both_ways ? shape.stages : shape.stages * shape.chunks;
}

std::uint32_t part_at(StageMap map, const PipelineShape& shape, ChunkPlace place) {
    const bool back = map != StageMap::round_robin && place.chunk % 2 == 1;
    const std::uint32_t within = back ? shape.stages - 1 - place.stage : place.stage;
    return (map == StageMap::both_ways ? 0 : place.chunk * shape.stages) + within;
}

ChunkPlace place_of_part(StageMap map, const PipelineShape& shape, std::uint32_t part, std::uint32_t way) {
    const std::uint32_t chunk = map == StageMap::both_ways ? way : part / shape.stages;
    const std::uint32_t within = part % shape.stages;
    const bool back = map != StageMap::round_robin && chunk % 2 == 1;
    return {back ? shape.stages - 1 - within : within, chunk};
}

double peak_in_flight(const std::vector<Pass>& passes, const std::vector<double>& weight) {
    // Activations are kept until the gradients of the weights are there.
    double now = 0;
    double peak = 0;
    for (const Pass& pass : passes) {
        const double of_chunk = weight.empty() ? 1 : weight[pass.chunk];
        now += pass.work == PassWork::forward ? of_chunk : pass.ends_micro_batch() ? -of_chunk : 0;
        peak = std::max(peak, now);
    }
    return peak;
}

std::vector<std::uint32_t> peaks_of(const PipelineOrder& order) {
    std::vector<std::uint32_t> out;
    for (const std::vector<Pass>& passes : order) {
        out.push_back(static_cast<std::uint32_t>(peak_in_flight(passes)));
    }
    return out;
}

std::uint32_t longest_wait(StageMap map, bool staggers, const PipelineShape& shape, const PipelineOrder& order,
                           const std::vector<std::uint32_t>& time) {
    constexpr std::uint32_t kNotYet = 0xFFFFFFFFU;
    const std::uint32_t parts = parts_of(map, shape);
    // Ends of forward passes, and of those that pass a gradient on, by chunk, stage and micro-batch.
    const auto slot = [&](ChunkPlace place, std::uint32_t micro_batch) {
        return (static_cast<std::size_t>(place.chunk) * shape.stages + place.stage) * shape.micro_batches + micro_batch;
    };
    std::vector<std::uint32_t> ends[2];
    ends[0].assign(static_cast<std::size_t>(shape.stages) * shape.chunks * shape.micro_batches, kNotYet);
    ends[1] = ends[0];
    std::vector<std::size_t> next(shape.stages, 0);
    std::vector<std::uint32_t> now(shape.stages, 0);
    std::vector<std::uint32_t> waited(shape.stages, 0);
    // When the input of a pass is there.
    const auto ready = [&](std::uint32_t stage, const Pass& pass) -> std::uint32_t {
        const std::uint32_t part = part_at(map, shape, {stage, pass.chunk});
        if (pass.work == PassWork::forward && part > 0) {
            return ends[0][slot(place_of_part(map, shape, part - 1, pass.chunk), pass.micro_batch)];
        }
        if (pass.gives_gradient()) {
            return part + 1 < parts ? ends[1][slot(place_of_part(map, shape, part + 1, pass.chunk), pass.micro_batch)]
                                    : ends[0][slot({stage, pass.chunk}, pass.micro_batch)];
        }
        return 0;
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
            while (next[stage] < order[stage].size()) {
                const Pass* pass = &order[stage][next[stage]];
                const std::uint32_t count = pass->joined ? 2 : 1;
                std::uint32_t from = 0;
                std::uint32_t takes = 0;
                for (std::uint32_t i = 0; i < count; ++i) {
                    from = std::max(from, ready(stage, pass[i]));
                    takes += time[static_cast<std::size_t>(pass[i].work)];
                }
                if (from == kNotYet) {
                    break;
                }
                if (next[stage] == 0 && staggers) {
                    now[stage] = from;
                }
                const std::uint32_t start = std::max(from, now[stage]);
                waited[stage] += start - now[stage];
                now[stage] = start + takes;
                for (std::uint32_t i = 0; i < count; ++i) {
                    if (pass[i].work == PassWork::forward || pass[i].gives_gradient()) {
                        ends[pass[i].work == PassWork::forward ? 0 : 1]
                            [slot({stage, pass[i].chunk}, pass[i].micro_batch)] = now[stage];
                    }
                }
                next[stage] += count;
                moved = true;
            }
        }
    }
    const std::uint32_t end = *std::max_element(now.begin(), now.end());
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
        ORRERY_ASSERT(next[stage] == order[stage].size());  // no stages that wait for each other
        waited[stage] += staggers ? 0 : end - now[stage];
    }
    return *std::max_element(waited.begin(), waited.end());
}

}  // namespace orrery::training
