// Orders by rules: the stages in time, each taking what it can, and single passes moved afterwards.

#include "sim/base/error.hpp"
#include "workloads/training/schedules/search.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace orrery::training {

namespace {

constexpr std::int64_t kNever = INT64_MAX;

struct ListedStage {
    std::uint32_t forward = 0, input = 0, weight = 0;  ///< passes begun
    std::vector<std::int64_t> activations,
        gradients;  ///< when inputs are there, by micro-batch, as far as that is known
    std::int64_t now = 0, sent = 0;
    std::int64_t wake = kNever;  ///< when it looks again
};

class ListScheduler {
  public:
    ListScheduler(const PipelineShape& shape, const MeasuredPipeline& measured, const ListRule& rule)
        : shape_(shape), in_(measured), rule_(rule), stages_(shape.stages), words_(shape.stages) {
        stages_[0].activations.assign(shape.micro_batches, 0);
        wake(0, 0);
        while (!events_.empty()) {
            const auto [time, s] = events_.top();
            events_.pop();
            if (stages_[s].wake == time) {
                stages_[s].wake = kNever;
                stages_[s].now = std::max(stages_[s].now, time);
                decide(s);
            }
        }
    }
    [[nodiscard]] OrderWords words() && { return std::move(words_); }

  private:
    void wake(std::uint32_t s, std::int64_t at) {
        at = std::max(at, stages_[s].now);
        if (at < stages_[s].wake) {
            stages_[s].wake = at;
            events_.emplace(at, s);
        }
    }

    [[nodiscard]] std::uint32_t most_ahead(std::uint32_t s) const {
        const std::uint32_t behind = shape_.stages - s;
        switch (rule_.ahead) {
            case ListRule::Ahead::stages_behind:
                return behind;
            case ListRule::Ahead::twice:
                return 2 * behind - 1;
            default:
                return in_.held[s];
        }
    }
    [[nodiscard]] static std::int64_t ready(const std::vector<std::int64_t>& inputs, std::uint32_t next) {
        return next < inputs.size() ? inputs[next] : kNever;
    }
    [[nodiscard]] static bool within(std::int64_t at, std::int64_t now, double share, std::int64_t of) {
        return at != kNever && static_cast<double>(at - now) < share * static_cast<double>(of);
    }

    void decide(std::uint32_t s) {
        ListedStage& stage = stages_[s];
        const bool more = stage.forward < shape_.micro_batches;
        const bool room = stage.forward - stage.weight < in_.held[s];
        const bool may = more && stage.forward - stage.input < std::max(1U, most_ahead(s));
        const std::int64_t activation = more ? ready(stage.activations, stage.forward) : kNever;
        const std::int64_t gradient = stage.input < stage.forward ? ready(stage.gradients, stage.input) : kNever;
        const bool comes = gradient > stage.now && within(gradient, stage.now, rule_.keep_free, in_.forward[s]);
        const bool forward = may && room && activation <= stage.now && !comes;
        const bool input = gradient <= stage.now;
        if (forward && !(input && rule_.gradients_first)) {
            return run(s, PassWork::forward);
        }
        if (input) {
            return run(s, PassWork::input_gradient);
        }
        const std::int64_t next = std::min(may && room && activation > stage.now ? activation : kNever, gradient);
        const bool full = may && !room && activation <= stage.now;  // weight gradients make the room
        if (stage.weight < stage.input && (full || !within(next, stage.now, rule_.wait_for_pass, in_.weight[s]))) {
            return run(s, PassWork::weight_gradient);
        }
        if (next != kNever) {
            wake(s, next);
        }
    }

    void run(std::uint32_t s, PassWork work) {
        ListedStage& stage = stages_[s];
        words_[s].push_back(work);
        if (work == PassWork::forward) {
            ++stage.forward;
            stage.now += in_.forward[s];
            if (s + 1 < shape_.stages) {
                give(s + 1, &ListedStage::activations, send(stage, in_.send[s]));
            } else {
                stage.gradients.push_back(stage.now);
            }
        } else if (work == PassWork::input_gradient) {
            ++stage.input;
            stage.now += in_.input[s];
            if (s > 0) {
                give(s - 1, &ListedStage::gradients, send(stage, in_.send_gradient[s]));
            }
        } else {
            ++stage.weight;
            stage.now += in_.weight[s];
        }
        stage.wake = kNever;
        wake(s, stage.now);
    }
    // A stage that does nothing looks again: at once, as what comes may change what it waits for.
    void give(std::uint32_t to, std::vector<std::int64_t> ListedStage::*inputs, std::int64_t at) {
        (stages_[to].*inputs).push_back(at);
        if (stages_[to].wake == kNever || stages_[to].wake > at) {
            wake(to, at);
        }
    }
    std::int64_t send(ListedStage& stage, std::int64_t takes) const {
        stage.sent = std::max(stage.sent, stage.now) + takes;
        stage.now = in_.sender_waits ? stage.sent : stage.now;
        return stage.sent;
    }

    PipelineShape shape_;
    const MeasuredPipeline& in_;
    ListRule rule_;
    std::vector<ListedStage> stages_;
    OrderWords words_;
    using Event = std::pair<std::int64_t, std::uint32_t>;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

/// Moves the pass at `from` to `to`, those between by one.
void move_pass(StageWord& word, std::size_t from, std::size_t to) {
    const auto begin = word.begin();
    const auto at = [&](std::size_t i) { return begin + static_cast<std::ptrdiff_t>(i); };
    if (from < to) {
        std::rotate(at(from), at(from + 1), at(to + 1));
    } else {
        std::rotate(at(to), at(from), at(from + 1));
    }
}

}  // namespace

std::vector<ListRule> list_rules() {
    std::vector<ListRule> out;
    for (const double wait : {0.0, 0.5, 1.0, 0.25}) {
        for (const double keep : {0.0, 1.0, 0.5}) {
            for (const auto ahead : {ListRule::Ahead::limit, ListRule::Ahead::stages_behind, ListRule::Ahead::twice}) {
                for (const bool gradients : {true, false}) {
                    out.push_back({ahead, gradients, wait, keep});
                }
            }
        }
    }
    return out;
}

OrderWords list_schedule(const PipelineShape& shape, const MeasuredPipeline& measured, const ListRule& rule) {
    return ListScheduler(shape, measured, rule).words();
}

OrderWords improve(const PipelineShape& shape, const MeasuredPipeline& measured, OrderWords words,
                   std::uint64_t& tries) {
    const std::optional<OrderTime> first = play(shape, measured, words);
    ORRERY_ASSERT(first.has_value());
    OrderTime best = *first;
    const std::int64_t least = least_time(shape, measured);
    for (bool better = true; better && tries > 0;) {
        better = false;
        for (std::uint32_t s = 0; s < shape.stages; ++s) {
            for (std::size_t from = 0; from < words[s].size(); ++from) {
                for (const std::ptrdiff_t by : {1, -1, 2, -2, 4, -4}) {
                    const std::ptrdiff_t to = static_cast<std::ptrdiff_t>(from) + by;
                    if (to < 0 || to >= static_cast<std::ptrdiff_t>(words[s].size()) ||
                        words[s][from] == words[s][static_cast<std::size_t>(to)]) {
                        continue;
                    }
                    if (tries == 0 || best.longest <= least) {
                        return words;
                    }
                    --tries;
                    move_pass(words[s], from, static_cast<std::size_t>(to));
                    if (const std::optional<OrderTime> time = play(shape, measured, words); time && *time < best) {
                        best = *time;
                        better = true;
                    } else {
                        move_pass(words[s], static_cast<std::size_t>(to), from);
                    }
                }
            }
        }
    }
    return words;
}

}  // namespace orrery::training
