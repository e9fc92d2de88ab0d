#include "tools/plan/estimate.hpp"

#include "sim/base/error.hpp"
#include "tools/driver/kind.hpp"
#include "tools/plan/offload_space.hpp"
#include "workloads/training/features/offload.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace orrery::plan {

namespace {

// All wait for the ranks with the most to attend to: their middle micro-batch stands for each.
const MicroBatchLoad& busiest_load(const DocumentLayout& layout) {
    std::uint32_t busiest = 0;
    double most = -1;
    for (std::uint32_t column = 0; column < layout.columns; ++column) {
        double squares = 0;
        for (std::uint32_t m = 0; m < layout.micro_batches; ++m) {
            squares += layout.at(column, m).squares();
        }
        busiest = squares > most ? column : busiest;
        most = std::max(most, squares);
    }
    std::vector<const MicroBatchLoad*> loads;
    for (std::uint32_t m = 0; m < layout.micro_batches; ++m) {
        loads.push_back(&layout.at(busiest, m));
    }
    ORRERY_ASSERT(!loads.empty());
    std::stable_sort(loads.begin(), loads.end(),
                     [](const auto* a, const auto* b) { return a->squares() < b->squares(); });
    return *loads[loads.size() / 2];
}

// Gradients that are reduced after each micro-batch are not added up by the passes.
bool reduces_each(const PlanSpec& plan) {
    return plan.zero >= 2 && plan.pipeline == 1;
}

}  // namespace

// What the passes of the plans of a family cost: one price for each group of nodes that holds ranks.
class Estimator::Passes {
  public:
    explicit Passes(const TrainingInput& input) : plan_(input.plan), documents_(input.documents) {
        add_costs(input);
        for (const PassCost& cost : costs_) {
            Ends ends;
            ends.boundary_gather = cost.boundary_gather();
            ends.encoder = cost.encoder_seconds();
            if (plan_.vocabulary != VocabularyParallel::none) {
                ends.both = cost.vocabulary_pass(PassWork::scores).total() +
                            cost.vocabulary_pass(PassWork::score_gradients).total();
            } else {
                ends.embedding = cost.embedding_forward().total() + cost.embedding_backward().total();
                ends.head = cost.head_forward().total() + cost.head_backward().total();
            }
            ends_.push_back(ends);
        }
    }

    /// Whether they are those of another plan of the family.
    [[nodiscard]] bool are_of(const PlanSpec& plan) const {
        return plan.vocabulary == plan_.vocabulary && reduces_each(plan) == reduces_each(plan_);
    }

    /// Seconds of one micro-batch, forward and backward.
    struct Ends {
        double embedding = 0, head = 0, encoder = 0;
        double both = 0;  ///< tables cut over all stages, of one of them
        double boundary_gather = 0;
    };
    [[nodiscard]] const std::vector<PassCost>& costs() const { return costs_; }
    [[nodiscard]] const Ends& ends(std::size_t kind) const { return ends_[kind]; }
    /// Places among the costs, of the nodes that hold some of a stage.
    [[nodiscard]] const std::set<std::size_t>& kinds_of(std::uint32_t stage) const { return kinds_[stage]; }

  private:
    void add_costs(const TrainingInput& in) {
        kinds_.resize(static_cast<std::size_t>(plan_.pipeline), {0});
        if (documents_ != nullptr) {
            costs_.emplace_back(in.model, plan_, in.software, in.device, in.gpu, in.fabric, in.collectives, in.paths,
                                in.priced(), &busiest_load(*documents_));
            return;
        }
        if (in.groups.empty()) {
            costs_.emplace_back(in.model, plan_, in.software, in.device, in.gpu, in.fabric, in.collectives, in.paths,
                                in.priced());
            return;
        }
        std::map<std::uint32_t, std::size_t> kind_of;
        for (std::uint32_t stage = 0; stage < kinds_.size(); ++stage) {
            kinds_[stage].clear();
            for (std::int64_t replica = 0; replica < plan_.data; ++replica) {
                const GpuId first = in.first_gpu(stage, replica);
                const auto [known, fresh] = kind_of.try_emplace(in.fabric.group_of(first), costs_.size());
                if (fresh) {
                    const GroupDevice& of = in.groups[known->first];
                    costs_.emplace_back(in.model, plan_, in.software, *of.device, *of.gpu, in.fabric, *of.collectives,
                                        in.paths, in.priced(stage, static_cast<std::uint32_t>(replica)));
                }
                kinds_[stage].insert(known->second);
            }
        }
    }

    PlanSpec plan_;  ///< a copy, as prices refer to it
    std::shared_ptr<const DocumentLayout> documents_;
    std::vector<PassCost> costs_;
    std::vector<Ends> ends_;
    std::vector<std::set<std::size_t>> kinds_;  ///< by stage
};

class Estimator::Estimate {
  public:
    Estimate(const TrainingInput& input, const Passes& passes, double bubble)
        : in_(input),
          passes_(passes),
          bubble_(bubble),
          stages_(static_cast<std::uint32_t>(input.plan.pipeline)),
          chunks_(static_cast<std::uint32_t>(input.plan.chunks)),
          layers_(layers_of_parts(input.model, input.plan)) {
        std::int64_t first = 0;
        for (const std::uint32_t count : layers_) {
            first_.push_back(first);
            first += count;
        }
        ORRERY_ASSERT(first == input.model.layers);
    }

    [[nodiscard]] double seconds() const {
        const double micro_batches =
            in_.documents != nullptr ? in_.documents->micro_batches : static_cast<double>(in_.plan.micro_batches());
        double slowest = 0;
        double sum = 0;
        RankWeights weights;  // of the fullest stage
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            const double passes = stage_seconds(stage);
            slowest = std::max(slowest, passes);
            sum += passes;
            const RankWeights held = stage_parameters(stage);
            weights = held.bytes() > weights.bytes() ? held : weights;
        }
        double total = micro_batches * slowest;
        if (stages_ > 1) {
            // Filling and draining: passes of a mean stage beside the slowest.
            total += bubble_ * (sum - slowest) / (stages_ - 1);
            const double waits = in_.plan.overlap_pipeline ? 0 : micro_batches * chunks_;
            total += 2 * (waits + stages_ - 1) * send_seconds();
        }
        total += in_.plan.zero >= 2 && stages_ == 1
                     ? sharded_seconds(weights, micro_batches * slowest)
                     : replicated_seconds(weights.dense, width(), in_.plan.tensor) + expert_seconds(weights.experts);
        double update = 0;
        const double updated = updated_weights(in_.plan, weights);
        for (const PassCost& cost : passes_.costs()) {
            const double held = in_.plan.by_layer() ? updated : weights.total();
            update = std::max(update, cost.optimizer(updated, held).total());
        }
        const double kept = 1 - in_.plan.feature<OffloadPlan>().optimizer.away();  // of the states on the device
        return total + kept * update + offload_seconds(in_, micro_batches * slowest) + in_.software.step_overhead.value;
    }

  private:
    [[nodiscard]] std::int64_t width() const { return in_.plan.data * in_.plan.context; }
    [[nodiscard]] std::uint32_t part(std::uint32_t stage, std::uint32_t chunk) const {
        return part_at(in_.plan.schedule->map, in_.plan.shape(), {stage, chunk});
    }
    [[nodiscard]] bool holds(std::uint32_t stage, std::uint32_t wanted) const {
        bool held = false;
        for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
            held = held || part(stage, chunk) == wanted;
        }
        return held;
    }
    // Forward and backward of one micro-batch through all chunks of a stage, on the slowest nodes that hold some of it.
    [[nodiscard]] double stage_seconds(std::uint32_t stage) const {
        double slowest = 0;
        for (const std::size_t kind : passes_.kinds_of(stage)) {
            slowest = std::max(slowest, stage_seconds(stage, passes_.costs()[kind], passes_.ends(kind)));
        }
        return slowest;
    }
    [[nodiscard]] double stage_seconds(std::uint32_t stage, const PassCost& cost, const Passes::Ends& ends) const {
        double seconds = 0;
        for (std::size_t i = 0; i < LayerKind::kCount; ++i) {
            const LayerKind kind = LayerKind::at(i);
            std::int64_t count = 0;
            for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
                const std::uint32_t v = part(stage, chunk);
                count += in_.model.layers_of(kind, first_[v], layers_[v]);
            }
            if (count > 0) {
                seconds +=
                    static_cast<double>(count) * (cost.layer_forward(kind).total() + cost.layer_backward(kind).total());
            }
        }
        seconds += ends.both;
        if (holds(stage, 0)) {
            seconds += ends.encoder + ends.embedding;
        }
        if (holds(stage, static_cast<std::uint32_t>(layers_.size()) - 1)) {
            seconds += ends.head;
        }
        // Under two copies of the parameters a micro-batch takes one of a stage's two parts.
        seconds /= static_cast<double>(in_.plan.copies());
        return seconds + (stages_ > 1 ? 2 * chunks_ * ends.boundary_gather : 0);
    }

    [[nodiscard]] RankWeights stage_parameters(std::uint32_t stage) const {
        const bool first = holds(stage, 0);
        const bool last = holds(stage, static_cast<std::uint32_t>(layers_.size()) - 1);
        const double tables = in_.plan.vocabulary != VocabularyParallel::none
                                  ? (in_.model.tied_embeddings ? 1.0 : 2.0) / stages_
                              : first && last && in_.model.tied_embeddings ? 1
                                                                           : (first ? 1 : 0) + (last ? 1 : 0);
        LayerMix mix;
        for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
            const std::uint32_t v = part(stage, chunk);
            mix += mix_of(in_.model, first_[v], layers_[v], v == 0);
        }
        return weights_of(in_.model, in_.plan, mix, tables);
    }

    [[nodiscard]] const CollectiveModel& library_of(GpuId gpu) const {
        return in_.groups.empty() ? in_.collectives : *in_.groups[in_.fabric.group_of(gpu)].collectives;
    }

    [[nodiscard]] double send_seconds() const {
        const auto apart = static_cast<std::uint32_t>(in_.plan.tensor * width());
        double slowest = 0;
        for (std::uint32_t stage = 0; stage + 1 < stages_ && (stage == 0 || !in_.groups.empty()); ++stage) {
            const GpuId from = in_.placement.gpu(stage * apart);
            const GpuId to = in_.placement.gpu((stage + 1) * apart);
            slowest = std::max(
                slowest,
                seconds_alone(in_.fabric, make_send(in_.fabric, library_of(from), from, to,
                                                    Bytes(passes_.costs().front().boundary_bytes()), in_.paths, 0))
                    .value());
        }
        return slowest;
    }

    // Those of experts travel among the ranks that hold the same ones.
    [[nodiscard]] double expert_seconds(double weights) const {
        const std::int64_t copies = weights > 0 ? in_.plan.expert_data() : 1;
        return copies > 1 ? replicated_seconds(weights, copies, in_.plan.stage_ranks() / copies) : 0;
    }

    // A collective of `count` ranks, the first ones that hold the same weights as rank 0, so far apart.
    [[nodiscard]] double group_seconds(CollectiveOp op, double bytes, std::int64_t count, std::int64_t apart) const {
        double slowest = 0;
        for (std::int64_t stage = 0; count > 1 && stage < (in_.groups.empty() ? 1 : in_.plan.pipeline); ++stage) {
            std::vector<GpuId> group;
            std::vector<const CollectiveModel*> libraries;
            for (std::int64_t i = 0; i < count; ++i) {
                group.push_back(
                    in_.placement.gpu(static_cast<std::uint32_t>(stage * in_.plan.stage_ranks() + i * apart)));
                if (const CollectiveModel* library = &library_of(group.back());
                    std::find(libraries.begin(), libraries.end(), library) == libraries.end()) {
                    libraries.push_back(library);
                }
            }
            for (const CollectiveModel* library : libraries) {
                slowest = std::max(slowest, seconds_alone(in_.fabric, make_transfer(in_.fabric, *library, op, group,
                                                                                    Bytes(bytes), in_.paths))
                                                .value());
            }
        }
        return slowest;
    }

    [[nodiscard]] double replicated_seconds(double weights, std::int64_t count, std::int64_t apart) const {
        const double gradients = bytes_of(in_.plan.gradient_precision) * weights;
        if (in_.plan.zero == 0) {
            return group_seconds(CollectiveOp::all_reduce, gradients, count, apart) /
                   (in_.plan.overlap_data ? chunks_ : 1);
        }
        return group_seconds(CollectiveOp::reduce_scatter, gradients, count, apart) /
                   (in_.plan.overlap_data ? chunks_ : 1) +
               group_seconds(CollectiveOp::all_gather, 2 * weights, count, apart) /
                   (in_.plan.overlap_parameters ? chunks_ : 1);
    }

    // ZeRO-2 and 3 move weights and gradients in every micro-batch; what the passes hide costs nothing.
    [[nodiscard]] double sharded_seconds(const RankWeights& weights, double compute) const {
        const auto micro_batches = static_cast<double>(in_.plan.micro_batches());
        const std::int64_t shard = in_.plan.zero == 3 && in_.plan.shard > 0 ? in_.plan.shard : width();
        const double gathers = in_.plan.zero == 3 ? 2 * micro_batches : 1;
        const double gradient = bytes_of(in_.plan.gradient_precision);
        const auto seconds = [&](double held, double reduced, std::int64_t count, std::int64_t apart) {
            return gathers * group_seconds(CollectiveOp::all_gather, held, count, apart) +
                   micro_batches * group_seconds(CollectiveOp::reduce_scatter, reduced, count, apart);
        };
        const double frozen = in_.plan.zero == 3 ? weights.frozen : 0;
        double moved = seconds(2 * weights.dense + frozen, gradient * weights.dense, shard, in_.plan.tensor);
        if (weights.experts > 0) {
            const std::int64_t copies = in_.plan.expert_data();
            moved += seconds(2 * weights.experts, gradient * weights.experts, copies, in_.plan.stage_ranks() / copies);
        }
        return in_.plan.overlap_data ? std::max(0.0, moved - compute) : moved;
    }

    const TrainingInput& in_;
    const Passes& passes_;
    double bubble_;
    std::uint32_t stages_, chunks_;
    std::vector<std::uint32_t> layers_;  ///< by virtual stage
    std::vector<std::int64_t> first_;    ///< of these, in the model
};

Estimator::Estimator() = default;
Estimator::~Estimator() = default;

const Estimator::Passes& Estimator::passes_of(const TrainingInput& input, std::size_t family) {
    if (family != family_) {
        passes_.clear();
        family_ = family;
    }
    const auto found =
        std::find_if(passes_.begin(), passes_.end(), [&](const auto& passes) { return passes->are_of(input.plan); });
    return found != passes_.end() ? **found : *passes_.emplace_back(std::make_unique<const Passes>(input));
}

Seconds Estimator::iteration(const TrainingInput& input, double bubble, std::size_t family) {
    return Seconds(Estimate(input, passes_of(input, family), bubble).seconds());
}

}  // namespace orrery::plan
