#include "tools/plan/estimate.hpp"

#include <algorithm>

namespace orrery::inline planning {

namespace {

class Estimate {
  public:
    explicit Estimate(const TrainingInput& input)
        : in_(input),
          cost_(input.model, input.plan, input.software, input.device, input.gpu, input.fabric, input.collectives,
                input.paths),
          stages_(static_cast<std::uint32_t>(input.plan.pipeline)),
          chunks_(static_cast<std::uint32_t>(input.plan.chunks)),
          layers_(split_layers(input.model.layers, static_cast<std::int64_t>(stages_) * chunks_)) {}

    [[nodiscard]] double seconds() const {
        const auto micro_batches = static_cast<double>(in_.plan.micro_batches());
        double slowest = 0;
        double sum = 0;
        double weights = 0;  // of the fullest stage
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            const double passes = stage_seconds(stage);
            slowest = std::max(slowest, passes);
            sum += passes;
            weights = std::max(weights, stage_parameters(stage));
        }
        double total = micro_batches * slowest;
        if (stages_ > 1) {
            // Filling and draining: passes of a mean stage beside the slowest.
            total += in_.plan.schedule->bubble(in_.plan.shape()) * (sum - slowest) / (stages_ - 1);
            const double waits = in_.plan.overlap_pipeline ? 0 : micro_batches * chunks_;
            total += 2 * (waits + stages_ - 1) * send_seconds();
        }
        total += in_.plan.zero >= 2 && stages_ == 1 ? sharded_seconds(weights, micro_batches * slowest)
                                                    : replicated_seconds(weights);
        const double shard = in_.plan.zero == 0                         ? 1
                             : in_.plan.zero == 3 && in_.plan.shard > 0 ? static_cast<double>(in_.plan.shard)
                                                                        : static_cast<double>(width());
        return total + cost_.optimizer(weights / shard).total() + in_.software.step_overhead.value;
    }

  private:
    [[nodiscard]] std::int64_t width() const { return in_.plan.data * in_.plan.context; }
    [[nodiscard]] std::uint32_t layers_of(std::uint32_t stage) const {
        std::uint32_t count = 0;
        for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
            count += layers_[chunk * stages_ + stage];
        }
        return count;
    }

    // Forward and backward of one micro-batch through all chunks of a stage.
    [[nodiscard]] double stage_seconds(std::uint32_t stage) const {
        double seconds = layers_of(stage) * (cost_.layer_forward().total() + cost_.layer_backward().total());
        if (stage == 0) {
            seconds += cost_.embedding_forward().total() + cost_.embedding_backward().total();
        }
        if (stage + 1 == stages_) {
            seconds += cost_.head_forward().total() + cost_.head_backward().total();
        }
        return seconds + (stages_ > 1 ? 2 * chunks_ * cost_.boundary_gather() : 0);
    }

    [[nodiscard]] double stage_parameters(std::uint32_t stage) const {
        const bool first = stage == 0;
        const bool last = stage + 1 == stages_;
        const double tables = first && last && in_.model.tied_embeddings ? 1 : (first ? 1 : 0) + (last ? 1 : 0);
        return (layers_of(stage) * in_.model.layer_parameters() + tables * in_.model.embedding_parameters()) /
               static_cast<double>(in_.plan.tensor);
    }

    [[nodiscard]] double send_seconds() const {
        const auto next = static_cast<std::uint32_t>(in_.plan.tensor * width());
        return seconds_alone(in_.fabric, make_send(in_.fabric, in_.collectives, GpuId(0), GpuId(next),
                                                   Bytes(cost_.boundary_bytes()), in_.paths, 0))
            .value();
    }

    // A collective of all ranks that hold the same weights as rank 0, or of the first `count` of them.
    [[nodiscard]] double group_seconds(CollectiveOp op, double bytes, std::int64_t count) const {
        std::vector<GpuId> group;
        for (std::int64_t i = 0; i < count; ++i) {
            group.emplace_back(static_cast<std::uint32_t>(i * in_.plan.tensor));
        }
        return group.size() < 2 ? 0
                                : seconds_alone(in_.fabric, make_transfer(in_.fabric, in_.collectives, op, group,
                                                                          Bytes(bytes), in_.paths))
                                      .value();
    }

    [[nodiscard]] double replicated_seconds(double weights) const {
        const double gradients = bytes_of(in_.plan.gradient_precision) * weights;
        if (in_.plan.zero == 0) {
            return group_seconds(CollectiveOp::all_reduce, gradients, width()) / (in_.plan.overlap_data ? chunks_ : 1);
        }
        return group_seconds(CollectiveOp::reduce_scatter, gradients, width()) / (in_.plan.overlap_data ? chunks_ : 1) +
               group_seconds(CollectiveOp::all_gather, 2 * weights, width()) /
                   (in_.plan.overlap_parameters ? chunks_ : 1);
    }

    // ZeRO-2 and 3 move weights and gradients in every micro-batch; what the passes hide costs nothing.
    [[nodiscard]] double sharded_seconds(double weights, double compute) const {
        const auto micro_batches = static_cast<double>(in_.plan.micro_batches());
        const std::int64_t shard = in_.plan.zero == 3 && in_.plan.shard > 0 ? in_.plan.shard : width();
        const double gathers = in_.plan.zero == 3 ? 2 * micro_batches : 1;
        const double moved = gathers * group_seconds(CollectiveOp::all_gather, 2 * weights, shard) +
                             micro_batches * group_seconds(CollectiveOp::reduce_scatter,
                                                           bytes_of(in_.plan.gradient_precision) * weights, shard);
        return in_.plan.overlap_data ? std::max(0.0, moved - compute) : moved;
    }

    const TrainingInput& in_;
    PassCost cost_;
    std::uint32_t stages_, chunks_;
    std::vector<std::uint32_t> layers_;  ///< by virtual stage
};

}  // namespace

Seconds estimate_iteration(const TrainingInput& input) {
    return Seconds(Estimate(input).seconds());
}

}  // namespace orrery::inline planning
