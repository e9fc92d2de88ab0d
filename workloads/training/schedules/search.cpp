#include "workloads/training/schedules/search.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <array>

namespace orrery::training {

OrderWords words_of(const PipelineOrder& order) {
    OrderWords words;
    for (const std::vector<Pass>& passes : order) {
        words.emplace_back();
        for (const Pass& pass : passes) {
            if (pass.work == PassWork::backward) {
                words.back().push_back(PassWork::input_gradient);
            }
            words.back().push_back(pass.work == PassWork::backward ? PassWork::weight_gradient : pass.work);
        }
    }
    return words;
}

PipelineOrder order_of(const OrderWords& words) {
    PipelineOrder order;
    for (const StageWord& word : words) {
        std::array<std::uint32_t, kPassWorks> next{};
        order.emplace_back();
        for (const PassWork work : word) {
            order.back().push_back({work, 0, next[static_cast<std::size_t>(work)]++});
        }
    }
    return order;
}

namespace {

/// A stage on its way through its word.
struct PlayedStage {
    std::size_t at = 0;
    std::uint32_t forward = 0, input = 0, weight = 0;  ///< passes done
    std::vector<std::int64_t> activations, gradients;  ///< when inputs are there, by micro-batch
    std::int64_t begin = -1, now = 0, sent = 0;
};

class Player {
  public:
    Player(const PipelineShape& shape, const MeasuredPipeline& measured)
        : shape_(shape), in_(measured), stages_(shape.stages) {
        for (PlayedStage& stage : stages_) {
            stage.activations.reserve(shape.micro_batches);
            stage.gradients.reserve(shape.micro_batches);
        }
        stages_[0].activations.assign(shape.micro_batches, 0);
    }

    std::optional<OrderTime> play(const OrderWords& words) {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::uint32_t s = 0; s < shape_.stages; ++s) {
                while (stages_[s].at < words[s].size()) {
                    const Step step = take(s, words[s][stages_[s].at]);
                    if (step == Step::never) {
                        return std::nullopt;
                    }
                    if (step == Step::not_yet) {
                        break;
                    }
                    ++stages_[s].at;
                    moved = true;
                }
            }
        }
        OrderTime out;
        if (in_.ends_meet) {
            stages_.front().now = stages_.back().now = std::max(stages_.front().now, stages_.back().now);
        }
        for (std::uint32_t s = 0; s < shape_.stages; ++s) {
            if (stages_[s].weight < shape_.micro_batches) {
                return std::nullopt;
            }
            const std::int64_t span = stages_[s].now - stages_[s].begin + in_.step[s];
            out.longest = std::max(out.longest, span);
            out.sum += span;
        }
        return out;
    }

  private:
    enum class Step : std::uint8_t { taken, not_yet, never };

    Step take(std::uint32_t s, PassWork work) {
        PlayedStage& stage = stages_[s];
        if (work == PassWork::forward) {
            if (stage.forward - stage.weight >= in_.held[s] || stage.forward == shape_.micro_batches) {
                return Step::never;
            }
            if (stage.forward == stage.activations.size()) {
                return Step::not_yet;
            }
            start(stage, stage.activations[stage.forward++]);
            stage.now += in_.forward[s];
            if (s + 1 < shape_.stages) {
                stages_[s + 1].activations.push_back(send(stage, in_.send[s]));
            } else {
                stage.gradients.push_back(stage.now);
            }
            return Step::taken;
        }
        if (work == PassWork::input_gradient) {
            if (stage.input >= stage.forward) {
                return Step::never;
            }
            if (stage.input == stage.gradients.size()) {
                return Step::not_yet;
            }
            start(stage, stage.gradients[stage.input++]);
            stage.now += in_.input[s];
            if (s > 0) {
                stages_[s - 1].gradients.push_back(send(stage, in_.send_gradient[s]));
            }
            return Step::taken;
        }
        if (stage.weight >= stage.input) {
            return Step::never;
        }
        ++stage.weight;
        stage.now += in_.weight[s];
        return Step::taken;
    }
    static void start(PlayedStage& stage, std::int64_t ready) {
        stage.now = std::max(stage.now, ready);
        stage.begin = stage.begin < 0 ? stage.now : stage.begin;
    }
    // Sends of a stage go one after another. Says when this one is there.
    std::int64_t send(PlayedStage& stage, std::int64_t takes) const {
        stage.sent = std::max(stage.sent, stage.now) + takes;
        stage.now = in_.sender_waits ? stage.sent : stage.now;
        return stage.sent;
    }

    PipelineShape shape_;
    const MeasuredPipeline& in_;
    std::vector<PlayedStage> stages_;
};

}  // namespace

std::optional<OrderTime> play(const PipelineShape& shape, const MeasuredPipeline& measured, const OrderWords& words) {
    return Player(shape, measured).play(words);
}

std::int64_t least_time(const PipelineShape& shape, const MeasuredPipeline& measured) {
    const auto waits = [&](std::int64_t sends) { return measured.sender_waits ? sends : 0; };
    const std::int64_t m = shape.micro_batches;
    std::int64_t least = 0;
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
        std::int64_t there = 0;  // from the first pass of stage s to that of stage t
        std::int64_t back = 0;   // from the end of a gradient on stage t to that on stage s
        for (std::uint32_t t = s; t < shape.stages; ++t) {
            if (t > s) {
                there += measured.forward[t - 1] + measured.send[t - 1];
                back += measured.send_gradient[t] + measured.input[t - 1];
            }
            // Weight gradients of all but what may be held come before the last forward pass.
            const std::int64_t apart = std::max<std::int64_t>(0, m - measured.held[t]);
            const std::int64_t first_to_last =
                m * (measured.forward[t] + measured.input[t]) + apart * measured.weight[t];
            least = std::max(least, there + first_to_last + back + measured.weight[s] + measured.step[s]);
        }
        // The first gradient comes back from the last stage, and until then there are forward passes alone.
        const std::uint32_t end = shape.stages - 1;
        const std::int64_t forward = measured.forward[s] + waits(measured.send[s]);
        const std::int64_t work = forward + measured.input[s] + waits(measured.send_gradient[s]) + measured.weight[s];
        const std::int64_t first =
            there + measured.forward[end] + (end > s ? measured.input[end] + back - measured.input[s] : 0);
        const std::int64_t ahead = std::min<std::int64_t>(measured.held[s], m);
        const std::int64_t all = m * work + std::max<std::int64_t>(0, first - ahead * forward);
        least = std::max(least, all + measured.step[s]);
        if (measured.ends_meet && s == 0) {
            const std::int64_t of_last =
                measured.forward[end] + measured.input[end] + waits(measured.send_gradient[end]) + measured.weight[end];
            least = std::max(least, there + m * of_last + measured.step[0]);
        }
    }
    return least;
}

namespace {

class OrderSearch {
  public:
    OrderSearch(const PipelineShape& shape, const MeasuredPipeline& measured)
        : shape_(shape), in_(measured), least_(least_time(shape, measured)) {}

    PipelineOrder search() {
        // Those of equal passes first, where they hold no more than is allowed: what is found is never slower.
        for (const char* name : {"zb-h1", "zb-h2", "1f1b"}) {
            consider(words_of(schedule_named(name).order(shape_)));
        }
        // Long iterations leave time for fewer rules and moves: passes played in all.
        constexpr std::uint64_t kMostPlayed = 40'000'000;
        const std::uint64_t passes = 3ULL * shape_.stages * shape_.micro_batches;
        std::uint64_t left = std::max<std::uint64_t>(8, kMostPlayed / passes);
        for (const ListRule& rule : list_rules()) {
            if (!done() && left > 0) {
                --left;
                consider(list_schedule(shape_, in_, rule));
            }
        }
        move_passes(std::min<std::uint64_t>(10ULL * in_.tries, left));
        if (!done() && in_.tries > 0 && program_fits(shape_)) {
            if (ProgramResult found = solve_program(shape_, in_, best_[0].time.longest, in_.tries); found.words) {
                consider(std::move(*found.words));
            }
        }
        ORRERY_ASSERT(!best_.empty());
        return order_of(best_[0].words);
    }

  private:
    /// Orders that moves begin with.
    static constexpr std::size_t kKept = 4;
    struct Found {
        OrderTime time;
        OrderWords words;
    };

    [[nodiscard]] bool done() const { return !best_.empty() && best_[0].time.longest <= least_; }

    void consider(OrderWords words) {
        const std::optional<OrderTime> time = play(shape_, in_, words);
        if (!time) {
            return;
        }
        ORRERY_ASSERT(time->longest >= least_);
        const auto at = std::lower_bound(best_.begin(), best_.end(), *time,
                                         [](const Found& one, const OrderTime& other) { return one.time < other; });
        if (at == best_.end() || at->time != *time) {
            best_.insert(at, {*time, std::move(words)});
            best_.resize(std::min(best_.size(), kKept));
        }
    }

    void move_passes(std::uint64_t tries) {
        const std::vector<Found> from = best_;
        for (std::size_t i = 0; i < from.size() && !done() && tries > 0; ++i) {
            consider(improve(shape_, in_, from[i].words, tries));
        }
    }

    PipelineShape shape_;
    const MeasuredPipeline& in_;
    std::int64_t least_;
    std::vector<Found> best_;  ///< fastest first
};

}  // namespace

static PipelineOrder search_order(const PipelineShape& shape, const MeasuredPipeline& measured) {
    return OrderSearch(shape, measured).search();
}

static MeasuredPipeline equal_passes(const PipelineShape& shape) {
    MeasuredPipeline out;
    out.forward = out.input = out.weight = std::vector<std::int64_t>(shape.stages, 1);
    out.send = out.send_gradient = out.step = std::vector<std::int64_t>(shape.stages, 0);
    out.held.assign(shape.stages, shape.stages);
    return out;
}

// The order that is best for what the passes of each stage take, within what a stage may hold: orders of equal passes, list schedules by
// several rules, moves of single passes, and an integer program where that is small. Nothing depends on how long it takes.
// With the activations of 1F1B's first stage on every stage and equal passes it is zb-h1's; stages of unequal length, as with a large
// vocabulary on the last, and passes of unequal length have others (the authors' ZB-1p and ZB-2p).
// Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv:2401.10241, section 3.1 (heuristics) and appendix G (program).
// Limits: the best only where the program ends, or no stage waits longer than it must; passes that exchange gradients or weights of
// data-parallel ranks count as the others.
extern const PipelineSchedule kSearchedSchedule = {
    "search",
    "best order of passes found by search for their times, within each stage's activation memory",
    false,
    true,
    [](const PipelineShape& shape) { return schedule_named("zb-h1").problem(shape); },
    [](const PipelineShape& shape) { return search_order(shape, equal_passes(shape)); },
    [](const PipelineShape& shape) { return peaks_of(search_order(shape, equal_passes(shape))); },
    [](const PipelineShape& shape) { return schedule_named("zb-h1").bubble(shape); },
    true,
    StageMap::round_robin,
    true,
    false,
    search_order};

}  // namespace orrery::training
