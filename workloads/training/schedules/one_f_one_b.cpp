#include "sim/base/error.hpp"
#include "workloads/training/schedules/schedule.hpp"

#include <algorithm>
#include <limits>

namespace orrery::training {

namespace {

/// Micro-batches that the output layer holds up before their backward pass may begin: one a barrier.
std::uint32_t barriers_of(VocabularyParallel vocabulary) {
    return vocabulary == VocabularyParallel::none ? 0 : vocabulary == VocabularyParallel::two_barriers ? 2 : 1;
}

std::uint32_t warmup(const PipelineShape& shape, std::uint32_t stage) {
    return std::min(shape.stages - stage - 1 + barriers_of(shape.vocabulary), shape.micro_batches);
}

std::vector<Pass> plain(const PipelineShape& shape, std::uint32_t stage) {
    return forward_then_in_turn(warmup(shape, stage), shape.micro_batches, [](bool backward, std::uint32_t i) {
        return Pass{forward_or(backward), 0, i};
    });
}

/// All stages in short steps. A stage takes its part of the output layer as soon as it can, for all wait for it, and else the next
/// pass of 1F1B. What comes between stages takes a step.
class WithVocabulary {
  public:
    explicit WithVocabulary(const PipelineShape& shape)
        : shape_(shape), one_barrier_(shape.vocabulary == VocabularyParallel::one_barrier), stages_(shape.stages) {
        for (std::uint32_t s = 0; s < shape.stages; ++s) {
            stages_[s].plain = plain(shape, s);
            stages_[s].forward_end.assign(shape.micro_batches, kNotYet);
            stages_[s].backward_end.assign(shape.micro_batches, kNotYet);
        }
        scored_.resize(shape.micro_batches);
        given_.resize(shape.micro_batches);
        std::size_t left = 4UL * shape.micro_batches * shape.stages;
        for (std::uint64_t now = 0; left > 0; ++now) {
            for (std::uint32_t s = 0; s < shape.stages; ++s) {
                left -= stages_[s].free <= now && take(s, now) ? 1 : 0;
            }
        }
    }

    [[nodiscard]] PipelineOrder order() && {
        return of_stages(shape_, [&](std::uint32_t stage) { return std::move(stages_[stage].passes); });
    }

  private:
    static constexpr std::uint64_t kNotYet = std::numeric_limits<std::uint64_t>::max();
    // Steps of a pass: of a large vocabulary, as a rule.
    static constexpr std::uint64_t kForward = 4, kBackward = 8, kProduct = 1, kTravels = 1;

    struct Stage {
        std::vector<Pass> plain, passes;
        std::size_t next = 0;  ///< of plain
        std::uint32_t scores = 0, gradients = 0;
        std::vector<std::uint64_t> forward_end, backward_end;
        std::uint64_t free = 0;
    };
    /// Of a micro-batch: stages that have done their part, and when the last one had.
    struct Meeting {
        std::uint32_t there = 0;
        std::uint64_t last = 0;
    };

    [[nodiscard]] bool met(const Meeting& meeting, std::uint64_t now) const {
        return meeting.there == shape_.stages && meeting.last + kTravels <= now;
    }

    bool take(std::uint32_t s, std::uint64_t now) {
        Stage& stage = stages_[s];
        const auto run = [&](const Pass& pass, std::uint64_t steps) {
            stage.passes.push_back(pass);
            stage.free = now + steps;
        };
        const auto meet = [&](Meeting& meeting) {
            ++meeting.there;
            ORRERY_ASSERT(meeting.there <= shape_.stages);
            meeting.last = std::max(meeting.last, stage.free);
        };
        const std::vector<std::uint64_t>& last_end = stages_.back().forward_end;
        if (stage.scores < shape_.micro_batches && last_end[stage.scores] < now) {
            run({PassWork::scores, 0, stage.scores}, one_barrier_ ? 2 * kProduct : kProduct);
            meet(scored_[stage.scores++]);
            return true;
        }
        if (stage.gradients < stage.scores && met(scored_[stage.gradients], now)) {
            run({PassWork::score_gradients, 0, stage.gradients}, one_barrier_ ? kProduct : 2 * kProduct);
            meet(given_[stage.gradients++]);
            return true;
        }
        if (stage.next == stage.plain.size()) {
            return false;
        }
        const Pass& pass = stage.plain[stage.next];
        const std::uint32_t i = pass.micro_batch;
        const bool forward = pass.work == PassWork::forward;
        const bool last = s + 1 == shape_.stages;
        const bool ready = forward ? s == 0 || stages_[s - 1].forward_end[i] < now
                           : last  ? met(one_barrier_ ? scored_[i] : given_[i], now)
                                   : stages_[s + 1].backward_end[i] < now;
        if (!ready) {
            return false;
        }
        run(pass, forward ? kForward : kBackward);
        (forward ? stage.forward_end : stage.backward_end)[i] = stage.free;
        ++stage.next;
        return true;
    }

    PipelineShape shape_;
    bool one_barrier_;
    std::vector<Stage> stages_;
    std::vector<Meeting> scored_, given_;  ///< by micro-batch
};

}  // namespace

// As many forward passes as there are stages behind, then one forward and one backward pass in turn. Where the vocabulary is cut over
// all stages, each barrier of the output layer keeps one micro-batch more in flight.
// Source: Narayanan et al., SC21, arXiv:2104.04473, section 2.2.1 (PipeDream-Flush); Yeung et al., "Balancing Pipeline Parallelism
// with Vocabulary Parallelism", MLSys 2025, arXiv:2411.05288, section 5.
extern const PipelineSchedule kOneForwardOneBackward = {
    "1f1b",
    "1F1B: one forward and one backward pass in turn",
    false,
    true,
    [](const PipelineShape&) { return std::string(); },
    [](const PipelineShape& shape) {
        return shape.vocabulary == VocabularyParallel::none
                   ? of_stages(shape, [&](std::uint32_t stage) { return plain(shape, stage); })
                   : WithVocabulary(shape).order();
    },
    [](const PipelineShape& shape) {
        return of_stages(shape,
                         [&](std::uint32_t stage) { return std::min(warmup(shape, stage) + 1, shape.micro_batches); });
    },
    [](const PipelineShape& shape) { return static_cast<double>(shape.stages - 1); },
    false,
    StageMap::round_robin,
    false,
    true};

}  // namespace orrery::training
