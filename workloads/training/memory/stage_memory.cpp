// Memory of each stage of a pipeline: what its layers, its passes under way and the images that they encode take.

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "workloads/training/memory/memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::training {

// Passes that a stage holds at its peak, each with the mean of the stage's chunks.
static std::vector<double> held_by_stage(const PlanSpec& plan, const std::vector<std::vector<double>>& layers) {
    const PipelineSchedule& schedule = *plan.schedule;
    const PipelineShape shape = plan.shape();
    std::vector<double> out;
    if (plan.stages.empty()) {
        for (const std::uint32_t count : schedule.in_flight(shape)) {
            out.push_back(count);
        }
        return out;
    }
    const PipelineOrder order = schedule.order(shape);
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
        double sum = 0;
        for (const double count : layers[stage]) {
            sum += count;
        }
        const double mean = sum / static_cast<double>(layers[stage].size());
        out.push_back(mean > 0 ? peak_in_flight(order[stage], layers[stage]) / mean : 0);
    }
    return out;
}

// Micro-batches whose images each stage holds at its peak: those of the passes of the first part that it has in flight.
static std::vector<double> encoded_by_stage(const PlanSpec& plan, const std::vector<std::vector<double>>& layers,
                                            const std::vector<double>& in_flight) {
    const PipelineShape shape = plan.shape();
    PipelineOrder order;
    std::vector<double> out;
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
        std::vector<double> front;  // by chunk of the stage
        for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
            front.push_back(part_at(plan.schedule->map, shape, {stage, chunk}) == 0 ? 1 : 0);
        }
        if (front.size() == 1 && (layers[stage][0] > 0 || plan.schedule->search != nullptr)) {
            out.push_back(front[0] * in_flight[stage]);
        } else if (std::count(front.begin(), front.end(), 1.0) == 0) {
            out.push_back(0);
        } else {
            order = order.empty() ? plan.schedule->order(shape) : order;
            out.push_back(peak_in_flight(order[stage], front));
        }
    }
    return out;
}

std::vector<std::uint32_t> most_in_flight(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software) {
    const SearchPlan& search = plan.search;
    const std::int64_t most = search.held > 0          ? search.held
                              : search.activations > 0 ? plan.micro_batches()
                                                       : plan.pipeline;
    const auto stages = static_cast<std::size_t>(plan.pipeline);
    std::vector<std::uint32_t> out(stages, static_cast<std::uint32_t>(std::min(most, plan.micro_batches())));
    if (search.activations <= 0) {
        return out;
    }
    const std::vector<MemoryUse> one = memory_by_stage(model, plan, software, std::vector<double>(stages, 1));
    const std::vector<MemoryUse> two = memory_by_stage(model, plan, software, std::vector<double>(stages, 2));
    for (std::size_t stage = 0; stage < stages; ++stage) {
        const double more = search.activations - one[stage].activations;
        if (more < 0) {
            throw InfeasibleError(
                fmt::format("plan.schedule.activations is {}, and stage {} needs {} for one micro-batch",
                            pretty_quantity(search.activations, Dimension::bytes), stage,
                            pretty_quantity(one[stage].activations, Dimension::bytes)));
        }
        const double each = two[stage].activations - one[stage].activations;
        if (more < each * out[stage]) {
            out[stage] = std::min(out[stage], 1 + static_cast<std::uint32_t>(more / each));
        }
    }
    return out;
}

std::vector<MemoryUse> memory_by_stage(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software,
                                       std::vector<double> in_flight) {
    const PipelineShape shape = plan.shape();
    const StageMap map = plan.schedule->map;
    const std::vector<std::uint32_t> layers = layers_of_parts(model, plan);
    std::vector<std::int64_t> first_of(layers.size(), 0);
    for (std::size_t part = 1; part < layers.size(); ++part) {
        first_of[part] = first_of[part - 1] + layers[part - 1];
    }
    ORRERY_ASSERT(first_of.back() + layers.back() == model.layers);
    std::vector<LayerMix> held(shape.stages);
    std::vector<std::vector<double>> by_chunk(shape.stages);
    std::vector<std::pair<bool, bool>> ends(shape.stages);
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
        for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
            const std::uint32_t part = part_at(map, shape, {stage, chunk});
            held[stage] += mix_of(model, first_of[part], layers[part], part == 0);
            by_chunk[stage].push_back(layers[part]);
            ends[stage].first = ends[stage].first || part == 0;
            ends[stage].second = ends[stage].second || part + 1 == layers.size();
        }
    }
    if (in_flight.empty() && plan.schedule->search != nullptr) {
        const std::vector<std::uint32_t> most = most_in_flight(model, plan, software);
        in_flight.assign(most.begin(), most.end());
    } else if (in_flight.empty()) {
        in_flight = held_by_stage(plan, by_chunk);
    }
    ORRERY_ASSERT(in_flight.size() == shape.stages);
    const std::vector<double> encoded =
        model.encoder.given() ? encoded_by_stage(plan, by_chunk, in_flight) : std::vector<double>(shape.stages, 0);
    std::vector<MemoryUse> out;
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
        out.push_back(memory_of(model, plan, software, held[stage], ends[stage].first, ends[stage].second,
                                in_flight[stage], encoded[stage]));
    }
    return out;
}

}  // namespace orrery::training
