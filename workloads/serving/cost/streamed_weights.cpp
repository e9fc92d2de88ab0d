#include "workloads/serving/cost/streamed_weights.hpp"

#include <algorithm>
#include <utility>

namespace orrery::serving {

void describe(Fields& fields, StreamedSpec& streamed) {
    fields.quantity({"bandwidth", "rate at which each device's weights come to it", true, 1, 1e15}, Dimension::rate,
                    streamed.bandwidth);
    fields.integer({"window", "layers that a device holds; 1: nothing is loaded ahead", false, 1, 4096},
                   streamed.window);
}

double layer_bytes_per_rank(const ModelSpec& model, Precision weights, std::int64_t layers, std::int64_t tensor) {
    return static_cast<double>(layers) * model.layer_parameters() * bytes_of(weights) / static_cast<double>(tensor);
}

double streamed_seconds(double kernels, double loads, std::int64_t window) {
    return window > 1 ? std::max(kernels, loads) : kernels + loads;
}

double sum_by_messages(const ServingModel& model, const std::vector<GpuId>& ranks, double bytes) {
    const auto n = static_cast<double>(ranks.size());
    const auto send = [&](double payload) {
        return make_send(model.fabric, model.collectives, ranks[1], ranks[0], Bytes(payload), model.paths, 0);
    };
    if (model.sums == SumRoute::ring) {
        return 2 * (n - 1) * seconds_alone(model.fabric, send(bytes / n)).value();
    }
    // The first rank's port takes what all others send, one after another.
    return 2 * seconds_alone(model.fabric, send((n - 1) * bytes)).value();
}

StreamedStep::StreamedStep(std::unique_ptr<StepCost> of, const ServingModel& model)
    : of_(std::move(of)),
      loads_(layer_bytes_per_rank(model.model, model.quantisation.weights,
                                  model.layers > 0 ? model.layers : model.model.layers,
                                  static_cast<std::int64_t>(model.gpus.size() / model.groups)) /
             model.streamed.bandwidth),
      window_(model.streamed.window) {}

StepWork StreamedStep::waits(double kernels) const {
    return {streamed_seconds(kernels, loads_, window_) - kernels, 0, 0, 0, 0};
}

StepWork StreamedStep::work(const Batch& batch) {
    const StepWork work = of_->work(batch);
    return work + waits(work.seconds);
}

StepProgram StreamedStep::program(const Batch& batch) {
    StepProgram out = of_->program(batch);
    out.add("waits for weights", StepClass::host, waits(of_->work(batch).seconds));
    return out;
}

}  // namespace orrery::serving
