#include "workloads/training/schedules/schedule.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <optional>
#include <set>

namespace orrery::training {

namespace {

constexpr std::uint32_t kUnset = std::numeric_limits<std::uint32_t>::max();

/// What one of the three says: how long a micro-batch takes from stage to stage (forward through chunk 0 and 1, backward through
/// chunk 1 and 0), in passes, the passes that a stage may hold, and what the stage which waits longest waits in the end, in passes.
/// Longer strides hold more and wait less.
struct VRule {
    std::array<std::uint32_t, 4> strides;
    std::uint32_t (*most)(std::uint32_t stages);
    std::uint32_t (*waits)(std::uint32_t stages);
    bool fills;  ///< until its first backward pass a stage takes any forward pass that it has memory for
};

/// All stages in steps of equal length, for forward passes, input gradients and weight gradients alike. Forward passes and input
/// gradients come in the order of a block of passes that is repeated for every micro-batch, six steps later; weight gradients when
/// nothing else can be done, or when there is no memory for another forward pass.
class VPipeline {
  public:
    VPipeline(const PipelineShape& shape, const VRule& rule)
        : shape_(shape), rule_(rule), most_(rule.most(shape.stages)), stages_(shape.stages) {
        make_block();
        for (Stage& stage : stages_) {
            for (auto* ends : {&stage.forward_end, &stage.input_end}) {
                ends->fill(std::vector<std::uint32_t>(shape.micro_batches, kUnset));
            }
            stage.passes.reserve(6UL * shape.micro_batches);
        }
        const std::size_t all = 6UL * shape.micro_batches * shape.stages;
        std::vector<std::optional<Pass>> taken(shape.stages);
        std::size_t done = 0;
        for (std::uint32_t now = 0; done < all; ++now) {
            // Decided on what has ended before this step.
            for (std::uint32_t s = 0; s < shape.stages; ++s) {
                taken[s] = choose(s, now);
            }
            for (std::uint32_t s = 0; s < shape.stages; ++s) {
                if (taken[s]) {
                    run(stages_[s], *taken[s], now);
                    ++done;
                }
            }
        }
    }

    [[nodiscard]] PipelineOrder order() && {
        return of_stages(shape_, [&](std::uint32_t stage) { return std::move(stages_[stage].passes); });
    }

  private:
    static constexpr std::uint32_t kPeriod = 6;  ///< passes of a micro-batch on a stage

    struct Step {
        std::uint32_t at;
        bool backward;
        std::uint32_t chunk;
    };
    struct Stage {
        std::array<Step, 4> block;  ///< of micro-batch 0
        std::array<std::uint32_t, 2> forward{}, input{};
        std::array<std::vector<std::uint32_t>, 2> forward_end, input_end;  ///< by chunk and micro-batch
        std::deque<Pass> pending;                                          ///< weight gradients
        std::uint32_t held = 0;
        std::vector<Pass> passes;
    };

    // The way of micro-batch 0, so that no stage is asked for two passes at once when it is repeated.
    void make_block() {
        std::vector<std::set<std::uint32_t>> used(shape_.stages);
        std::uint32_t at = 0;
        for (std::uint32_t leg = 0; leg < 4; ++leg) {
            const bool backward = leg >= 2;
            const std::uint32_t chunk = leg == 1 || leg == 2 ? 1 : 0;
            for (std::uint32_t i = 0; i < shape_.stages; ++i) {
                const std::uint32_t stage = leg % 2 == 0 ? i : shape_.stages - 1 - i;
                at += leg == 0 && i == 0 ? 0 : i == 0 ? 1 : rule_.strides[leg];
                while (!used[stage].insert(at % kPeriod).second) {
                    ++at;
                }
                stages_[stage].block[leg] = {at, backward, chunk};
            }
        }
    }

    [[nodiscard]] bool ready(std::uint32_t s, bool backward, std::uint32_t chunk, std::uint32_t i,
                             std::uint32_t now) const {
        const Stage& stage = stages_[s];
        if (!backward && stage.held >= most_) {
            return false;
        }
        const ChunkPlace here{s, chunk};
        const std::uint32_t part = part_at(StageMap::back_and_forth, shape_, here);
        if (!backward && part == 0) {
            return true;
        }
        if (backward && part + 1 == 2 * shape_.stages) {
            return stage.forward_end[chunk][i] <= now;
        }
        const ChunkPlace from = place_of_part(StageMap::back_and_forth, shape_, backward ? part + 1 : part - 1, chunk);
        const Stage& other = stages_[from.stage];
        return (backward ? other.input_end : other.forward_end)[from.chunk][i] <= now;
    }

    // The step that comes next in the repeated blocks, of those not yet done. Blocks start every period: step k of micro-batch i is
    // at i * period + at.
    [[nodiscard]] std::optional<Step> next_step(const Stage& stage) const {
        std::optional<Step> best;
        std::uint64_t best_at = 0;
        for (const Step& step : stage.block) {
            const std::uint32_t i = step.backward ? stage.input[step.chunk] : stage.forward[step.chunk];
            const std::uint64_t at = std::uint64_t{i} * kPeriod + step.at;
            if (i < shape_.micro_batches && (!best || at < best_at)) {
                best = step;
                best_at = at;
            }
        }
        return best;
    }

    [[nodiscard]] std::optional<Pass> choose(std::uint32_t s, std::uint32_t now) const {
        const Stage& stage = stages_[s];
        const auto pass = [&](bool backward, std::uint32_t chunk) {
            return Pass{backward ? PassWork::input_gradient : PassWork::forward, chunk,
                        backward ? stage.input[chunk] : stage.forward[chunk]};
        };
        if (const std::optional<Step> step = next_step(stage)) {
            const Pass next = pass(step->backward, step->chunk);
            if (ready(s, step->backward, step->chunk, next.micro_batch, now)) {
                return next;
            }
        }
        if (rule_.fills && stage.input[1] == 0) {
            if (stage.forward[1] < stage.forward[0] && ready(s, false, 1, stage.forward[1], now)) {
                return pass(false, 1);
            }
            if (stage.forward[0] < shape_.micro_batches && ready(s, false, 0, stage.forward[0], now)) {
                return pass(false, 0);
            }
        }
        return stage.pending.empty() ? std::nullopt : std::optional<Pass>(stage.pending.front());
    }

    static void run(Stage& stage, const Pass& pass, std::uint32_t now) {
        stage.passes.push_back(pass);
        if (pass.work == PassWork::forward) {
            stage.forward_end[pass.chunk][stage.forward[pass.chunk]++] = now + 1;
            ++stage.held;
        } else if (pass.work == PassWork::input_gradient) {
            stage.input_end[pass.chunk][stage.input[pass.chunk]++] = now + 1;
            stage.pending.push_back({PassWork::weight_gradient, pass.chunk, pass.micro_batch});
        } else {
            stage.pending.pop_front();
            --stage.held;
        }
    }

    PipelineShape shape_;
    const VRule& rule_;
    std::uint32_t most_;
    std::vector<Stage> stages_;
};

// From two micro-batches a stage on, each further one repeats the steady state: neither the peaks nor the waits change.
bool steady(const PipelineShape& shape) {
    return shape.micro_batches >= 2 * shape.stages;
}

std::string needs_two_chunks(const PipelineShape& shape) {
    return shape.stages == 1   ? "a V-shaped schedule needs at least two pipeline stages"
           : shape.chunks != 2 ? "a V-shaped schedule holds two chunks a stage: chunks: 2"
                               : "";
}

// The memory of 1F1B, about half and about a third of it, in passes of one of two chunks.
constexpr VRule kFull{
    {4, 2, 4, 2}, [](std::uint32_t stages) { return 2 * stages; }, [](std::uint32_t) { return 0U; }, true};
constexpr VRule kHalf{{2, 1, 2, 1},
                      [](std::uint32_t stages) { return 2 * ((stages + 2) / 2); },
                      [](std::uint32_t stages) { return stages == 2 ? 3 : 3 * stages - 4; },
                      false};
constexpr VRule kThird{{1, 1, 1, 1},
                       [](std::uint32_t stages) { return 2 * ((stages + 4) / 3); },
                       // Where three divides the stages, blocks leave a step between their passes.
                       [](std::uint32_t stages) { return 4 * stages - (stages % 3 == 0 && stages > 3 ? 3 : 5); },
                       false};

template <const VRule& rule>
PipelineOrder order_by(const PipelineShape& shape) {
    return VPipeline(shape, rule).order();
}
template <const VRule& rule>
std::vector<std::uint32_t> in_flight_by(const PipelineShape& shape) {
    PipelineShape enough = shape;
    enough.micro_batches = std::min(shape.micro_batches, 2 * shape.stages);
    return peaks_of(order_by<rule>(enough));
}
template <const VRule& rule>
double bubble_by(const PipelineShape& shape) {
    const std::vector<std::uint32_t> equal(kPassWorks, 1);
    return (steady(shape) ? rule.waits(shape.stages)
                          : longest_wait(StageMap::back_and_forth, true, shape, order_by<rule>(shape), equal)) /
           6.0;
}

}  // namespace

// Two chunks a stage, of which a micro-batch visits the first on its way to the last stage and the second on its way back: each
// stage holds an early part of the model, long, and a late one, briefly. Backward passes in two as in zb-h1, whose authors' these are.
// With equal passes and enough micro-batches the longest wait, in passes of a micro-batch through a stage: none with the memory of
// 1F1B; about p / 2 with (p + 2) / 2 micro-batches' activations; about 2 p / 3 with (p + 4) / 3.
// Source: Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362, sections 3 and 4.
// Limits: orders are those of passes of equal length.
extern const PipelineSchedule kZeroBubbleV = {"zb-v",
                                              "ZB-V: two chunks per stage in a V, no waits, with the memory of 1f1b",
                                              true,
                                              true,
                                              needs_two_chunks,
                                              order_by<kFull>,
                                              in_flight_by<kFull>,
                                              bubble_by<kFull>,
                                              true,
                                              StageMap::back_and_forth,
                                              true};

extern const PipelineSchedule kVHalf = {"v-half",
                                        "V-Half: two chunks per stage in a V, with about half the memory of 1f1b",
                                        true,
                                        true,
                                        needs_two_chunks,
                                        order_by<kHalf>,
                                        in_flight_by<kHalf>,
                                        bubble_by<kHalf>,
                                        true,
                                        StageMap::back_and_forth,
                                        true};

extern const PipelineSchedule kVMin = {"v-min",
                                       "V-Min: two chunks per stage in a V, with about a third of the memory of 1f1b",
                                       true,
                                       false,  // it waits where passes are not equal
                                       needs_two_chunks,
                                       order_by<kThird>,
                                       in_flight_by<kThird>,
                                       bubble_by<kThird>,
                                       true,
                                       StageMap::back_and_forth,
                                       true};

}  // namespace orrery::training
