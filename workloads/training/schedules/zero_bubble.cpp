#include "workloads/training/schedules/schedule.hpp"

#include <algorithm>
#include <limits>
#include <optional>

namespace orrery::training {

namespace {

constexpr std::uint32_t kNotYet = std::numeric_limits<std::uint32_t>::max();

/// All stages in steps of equal length, for forward passes, input gradients and weight gradients alike. A stage takes what it can:
/// a forward pass while fewer than `ahead` wait for their backward pass and fewer than `most` for their weight gradients, else an
/// input gradient, else weight gradients.
class UnitPipeline {
  public:
    UnitPipeline(const PipelineShape& shape, bool twice) : shape_(shape), twice_(twice), stages_(shape.stages) {
        for (Stage& stage : stages_) {
            stage.forward_end.assign(shape.micro_batches, kNotYet);
            stage.input_end.assign(shape.micro_batches, kNotYet);
        }
        std::vector<Pass> taken;
        std::vector<std::uint32_t> by;
        std::uint32_t done = 0;
        for (std::uint32_t now = 0; done < shape.stages * shape.micro_batches; ++now) {
            // Decided on what has ended before this step.
            taken.clear();
            by.clear();
            for (std::uint32_t s = 0; s < shape.stages; ++s) {
                if (const std::optional<Pass> next = choose(s, now)) {
                    taken.push_back(*next);
                    by.push_back(s);
                }
            }
            for (std::size_t i = 0; i < taken.size(); ++i) {
                done += run(stages_[by[i]], taken[i], now) ? 1 : 0;
            }
        }
    }

    [[nodiscard]] PipelineOrder order() && {
        return of_stages(shape_, [&](std::uint32_t stage) { return std::move(stages_[stage].passes); });
    }
    /// Steps that the stage which waits longest waits between its first and last pass.
    [[nodiscard]] std::uint32_t longest_wait() const {
        std::uint32_t wait = 0;
        for (const Stage& stage : stages_) {
            wait = std::max(wait, stage.end - stage.start - 3 * shape_.micro_batches);
        }
        return wait;
    }

  private:
    struct Stage {
        std::uint32_t forward = 0, input = 0, weights = 0;  ///< passes done
        std::vector<std::uint32_t> forward_end, input_end;  ///< by micro-batch
        std::vector<Pass> passes;
        std::uint32_t start = kNotYet, end = 0;
    };

    [[nodiscard]] std::optional<Pass> choose(std::uint32_t s, std::uint32_t now) const {
        const Stage& stage = stages_[s];
        const auto ended = [&](std::uint32_t at) { return at <= now; };
        const std::uint32_t behind = shape_.stages - s;
        const std::uint32_t ahead = twice_ ? 2 * behind - 1 : behind;
        const std::uint32_t most = twice_ ? 2 * shape_.stages - 1 : shape_.stages;
        if (stage.forward < shape_.micro_batches && stage.forward - stage.input < ahead &&
            stage.forward - stage.weights < most && (s == 0 || ended(stages_[s - 1].forward_end[stage.forward]))) {
            return Pass{PassWork::forward, 0, stage.forward};
        }
        if (stage.input < stage.forward && ended(stage.forward_end[stage.input]) &&
            (s + 1 == shape_.stages || ended(stages_[s + 1].input_end[stage.input]))) {
            return Pass{PassWork::input_gradient, 0, stage.input};
        }
        if (stage.weights < stage.input) {
            return Pass{PassWork::weight_gradient, 0, stage.weights};
        }
        return std::nullopt;
    }

    // Says whether it was the micro-batch's last pass on the stage.
    static bool run(Stage& stage, const Pass& pass, std::uint32_t now) {
        stage.start = std::min(stage.start, now);
        stage.end = now + 1;
        stage.passes.push_back(pass);
        if (pass.work == PassWork::forward) {
            stage.forward_end[stage.forward++] = now + 1;
        } else if (pass.work == PassWork::input_gradient) {
            stage.input_end[stage.input++] = now + 1;
        } else {
            ++stage.weights;
        }
        return pass.ends_micro_batch();
    }

    PipelineShape shape_;
    bool twice_;
    std::vector<Stage> stages_;
};

// From a few micro-batches per stage on, each further one repeats the steady state: neither the peak nor the waits change.
PipelineShape enough(PipelineShape shape) {
    shape.micro_batches = std::min(shape.micro_batches, 4 * shape.stages);
    return shape;
}

std::string needs_stages(const PipelineShape& shape) {
    return shape.stages == 1 ? "a zero-bubble schedule needs at least two pipeline stages" : "";
}

}  // namespace

// The backward pass in two: the gradient of the input, which the stage before waits for, and the gradients of the weights, which
// fill what would be waiting. No stage waits for the norm of all gradients before its optimizer (the authors' post-validation).
// An iteration takes what its slowest stage takes, since stages begin the next one one after another.
// zb-h1 holds the activations of as many micro-batches as 1F1B, zb-h2 of nearly twice as many. With equal passes the longest wait
// is a third of 1F1B's and none.
// Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv:2401.10241, sections 2 and 4.
// Limits: the order is that of passes of equal length; search.cpp finds those of measured lengths (the authors' ZB-1p, ZB-2p).
extern const PipelineSchedule kZeroBubbleH1 = {
    "zb-h1",
    "ZB-H1: separate passes of weight gradients fill waits, with the memory of 1f1b",
    false,
    true,
    needs_stages,
    [](const PipelineShape& shape) { return UnitPipeline(shape, false).order(); },
    [](const PipelineShape& shape) { return peaks_of(UnitPipeline(enough(shape), false).order()); },
    [](const PipelineShape& shape) { return UnitPipeline(enough(shape), false).longest_wait() / 3.0; },
    true,
    StageMap::round_robin,
    true};

extern const PipelineSchedule kZeroBubbleH2 = {
    "zb-h2",
    "ZB-H2: separate passes of weight gradients, no waits, with nearly twice the memory of 1f1b",
    false,
    false,  // memory is what plans are short of
    needs_stages,
    [](const PipelineShape& shape) { return UnitPipeline(shape, true).order(); },
    [](const PipelineShape& shape) { return peaks_of(UnitPipeline(enough(shape), true).order()); },
    [](const PipelineShape& shape) { return UnitPipeline(enough(shape), true).longest_wait() / 3.0; },
    true,
    StageMap::round_robin,
    true};

}  // namespace orrery::training
