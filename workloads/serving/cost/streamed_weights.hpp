#pragma once
// Weights that a device does not hold: each iteration takes them, layer after layer, from a drive or from the host's memory.
//
// Claims: a device holds the embedding, the LM head and `window` layers. With one layer a layer loads when the one before is done, so that
// an iteration takes its kernels and all loads; with more, loads run ahead of the kernels, and as all layers are alike the longer of both
// decides. Sums over tensor-parallel ranks may go by messages between the ranks: through the first rank, which adds up and sends
// back what each needs (star), or round all ranks (ring); each hop has the path's latency, which the closed forms of collectives
// have once.
// Scope: dense models; a drive or link of each device's own.
// Limits: what is loaded while an engine waits for requests is not counted; tokens of one iteration share its loads.
// Sources: Li et al., "TPI-LLM: Serving 70B-scale LLMs Efficiently on Low-resource Edge Devices", arXiv:2410.00531, sections 3.2 (sliding
// window) and 3.3 (star).
// Validated by tests/workloads/streamed_weights_test.cpp (closed forms) and scenarios/papers/tpi-llm.

#include "sim/config/fields.hpp"
#include "sim/network/collective.hpp"
#include "workloads/serving/cost/step_cost.hpp"

#include <memory>
#include <string>
#include <vector>

namespace orrery::serving {

void describe(Fields& fields, StreamedSpec& streamed);

/// Bytes of the layers of a stage on one rank of a tensor-parallel group: what is streamed where weights are.
[[nodiscard]] double layer_bytes_per_rank(const ModelSpec& model, Precision weights, std::int64_t layers,
                                          std::int64_t tensor);

/// Seconds of an iteration whose kernels take `kernels` and whose loads take `loads`.
[[nodiscard]] double streamed_seconds(double kernels, double loads, std::int64_t window);

/// A sum over ranks of `bytes` on each, by messages.
[[nodiscard]] double sum_by_messages(const ServingModel& model, const std::vector<GpuId>& ranks, double bytes);

/// Adds the waits for weights to another's iterations.
class StreamedStep final : public StepCost {
  public:
    StreamedStep(std::unique_ptr<StepCost> of, const ServingModel& model);
    [[nodiscard]] StepWork work(const Batch& batch) override;
    [[nodiscard]] StepProgram program(const Batch& batch) override;

  private:
    [[nodiscard]] StepWork waits(double kernels) const;

    std::unique_ptr<StepCost> of_;
    double loads_;  ///< s of an iteration
    std::int64_t window_;
};

}  // namespace orrery::serving
