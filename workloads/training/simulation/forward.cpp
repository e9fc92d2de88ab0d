#include "workloads/training/simulation/forward.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::training {

double forward_seconds(const TrainingInput& input, double sequences) {
    PlanSpec plan = input.plan;
    plan.recompute = Recompute::none;  // nothing is kept for a backward pass
    const auto stages = static_cast<std::size_t>(plan.pipeline);
    const std::vector<std::uint32_t> parts = layers_of_parts(input.model, plan);
    const PassCost cost(input.model, plan, input.software, input.device, input.gpu, input.fabric, input.collectives,
                        input.paths, input.priced(), input.documents ? &input.documents->loads.at(0) : nullptr);
    std::vector<double> seconds(stages, 0);
    double travel = 0;
    std::int64_t first = 0;
    for (std::size_t part = 0; part < parts.size(); ++part) {
        const std::size_t stage = part % stages;
        Price price;
        for (std::int64_t layer = first; layer < first + parts[part]; ++layer) {
            price += cost.layer_forward(input.model.kind_of(layer));
        }
        first += parts[part];
        if (part == 0) {
            price += cost.embedding_forward();
        } else {
            price[Category::pipeline_communication] += cost.boundary_gather();
        }
        if (part + 1 == parts.size()) {
            price += cost.head_forward();
        } else {
            const auto next = static_cast<std::int64_t>((part + 1) % stages);
            const GpuId from = input.first_gpu(static_cast<std::int64_t>(stage), 0);
            travel +=
                seconds_alone(input.fabric, make_send(input.fabric, input.collectives, from, input.first_gpu(next, 0),
                                                      Bytes(cost.boundary_bytes()), input.paths, part))
                    .value();
        }
        seconds[stage] += price.total();
    }
    ORRERY_ASSERT(first == input.model.layers);
    const double each = static_cast<double>(plan.micro_batch * plan.data);
    const double micro_batches = std::max(1.0, std::ceil(sequences / each));
    double way = travel;
    for (const double stage : seconds) {
        way += stage;
    }
    return way + (micro_batches - 1) * *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace orrery::training
