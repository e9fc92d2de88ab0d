// What passes of a pipeline and the sends between its stages take, for prices and for orders that are searched.

#include "sim/base/error.hpp"
#include "workloads/training/lowering/lowering.hpp"
#include "workloads/training/schedules/search.hpp"

#include <algorithm>

namespace orrery::training {

Price Lowering::pass_price(std::uint32_t v, Layers layers, bool begins, bool ends, PassWork work) const {
    const std::uint32_t parts = in_.plan.parts();
    ORRERY_ASSERT(v < parts);
    const bool backward = work != PassWork::forward;
    const bool first = v == 0 && (backward ? ends : begins);
    const bool last = v + 1 == parts && (backward ? begins : ends);
    Price price = chunk_price(layers, first, last, work);
    if (begins && parts > 1 && work != PassWork::weight_gradient && !(backward ? last : first)) {
        price[Category::pipeline_communication] += cost().boundary_gather();
    }
    if (host_waits()) {
        // Until the device has work again the host makes a buffer, starts a receipt and a send, and launches the first kernel.
        constexpr double kToRestart = 4;
        const double idle = in_.software.graphs == CudaGraphs::iteration ? 0 : kToRestart * in_.software.launch.value;
        price[Category::overhead] += idle + std::max(0.0, host_seconds(price) - price.total());
    }
    return price;
}

GroupTransfer Lowering::planned_send(std::uint32_t from, std::uint32_t to) const {
    return planned_send(in_.placement.gpu(out_.ranks[from]), in_.placement.gpu(out_.ranks[to]), send_hash(from, to, 0));
}

// By ranks of the simulated replicas, which those of the graph may stand for.
std::uint64_t Lowering::send_hash(std::uint32_t from, std::uint32_t to, std::uint32_t copy) const {
    return (static_cast<std::uint64_t>(from * ranks_in_one() + copy) << 32) | (to * ranks_in_one() + copy);
}

GroupTransfer Lowering::planned_send(GpuId from, GpuId to, std::uint64_t hash) const {
    const CollectiveModel& library =
        in_.groups.empty() ? in_.collectives : *in_.groups[in_.fabric.group_of(from)].collectives;
    return make_send(in_.fabric, library, from, to, Bytes(cost().boundary_bytes()), in_.paths, hash);
}

MeasuredPipeline Lowering::measure(const std::vector<Layers>& layers) {
    MeasuredPipeline out;
    out.sender_waits = !in_.plan.overlap_pipeline;
    out.held = most_in_flight(in_.model, in_.plan, in_.software);
    out.tries = static_cast<std::uint32_t>(in_.plan.search.tries);
    const auto travels = [&](std::uint32_t from, std::uint32_t to) {
        return SimTime::from_seconds(
                   seconds_alone(in_.fabric, planned_send(from * per_stage(), to * per_stage())).value())
            .ps();
    };
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        const auto takes = [&](PassWork work) {
            return slowest(stage, [&] { return pass_price(stage, layers[stage], true, true, work); }).ps();
        };
        out.forward.push_back(takes(PassWork::forward));
        out.input.push_back(takes(PassWork::input_gradient));
        out.weight.push_back(takes(PassWork::weight_gradient));
        const bool last = stage + 1 == stages_;
        out.send.push_back(last ? 0 : travels(stage, stage + 1));
        out.send_gradient.push_back(stage > 0 ? travels(stage, stage - 1) : 0);
        const RankWeights weights = parameters(layers[stage], tables_of(stage == 0, last));
        const double updated = updated_weights(in_.plan, weights);
        out.step.push_back(slowest(stage, [&] { return cost().optimizer(updated, weights.total()); }).ps());
    }
    out.ends_meet = in_.model.tied_embeddings && !in_.plan.frozen();
    if (out.ends_meet) {
        const std::uint32_t last = (stages_ - 1) * per_stage();
        const Group group{{0, last}, {in_.placement.gpu(out_.ranks[0]), in_.placement.gpu(out_.ranks[last])}};
        const double table = bytes_of(in_.plan.gradient_precision) * in_.model.embedding_parameters() / tensor_;
        const std::int64_t sum = SimTime::from_seconds(alone(CollectiveOp::all_reduce, group, table).seconds).ps();
        out.step.front() += sum;
        out.step.back() += sum;
    }
    return out;
}

}  // namespace orrery::training
