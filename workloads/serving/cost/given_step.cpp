#include "workloads/serving/cost/given_step.hpp"

#include "sim/base/error.hpp"
#include "workloads/serving/cost/streamed_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::serving {

namespace {

void describe_times(Fields& fields, DecodeTimes& times) {
    fields.quantity({"fixed", "fixed time of an iteration", false, 0, 100}, Dimension::time, times.fixed);
    fields.quantity({"sequence", "time per decoding sequence", false, 0, 100}, Dimension::time, times.sequence);
    fields.quantity({"context", "time per token in the cache that decoding sequences look back on", false, 0, 1},
                    Dimension::time, times.context);
}

// The grid point before `value`, which is not beyond the last, and how far it lies towards the next one.
std::pair<std::size_t, double> between(const std::vector<double>& grid, double value) {
    const auto next = std::upper_bound(grid.begin(), grid.end(), value);
    if (next == grid.begin()) {
        return {0, 0};
    }
    const auto at = static_cast<std::size_t>(next - grid.begin()) - 1;
    return {at, next == grid.end() ? 0 : (value - grid[at]) / (grid[at + 1] - grid[at])};
}

}  // namespace

void describe(Fields& fields, GivenStepSpec& step) {
    fields.quantity({"token", "time per new token of a prompt", false, 0, 100}, Dimension::time, step.token);
    fields.quantity({"square", "time per pair of a new token of a prompt and a token that it attends to", false, 0, 1},
                    Dimension::time, step.square);
    describe_times(fields, step.decodes);
    bool many = step.many > 0;
    fields.optional({"beyond", "constants that hold from a number of decoding sequences on"}, many, [&](Fields& inner) {
        inner.integer({"sequences", "number of sequences from which this row applies", true, 1, 1 << 20}, step.many);
        describe_times(inner, step.beyond);
    });
    fields.number({"mixed", "time of a mixed iteration relative to its prompts and decodes in separate iterations",
                   false, 0.01, 100},
                  step.mixed);
    fields.items(
        {"table", "times of decodes alone by number and mean context, in place of 'sequence' and 'context'"},
        step.table, [](Fields& inner, StepPoint& point) {
            inner.integer({"sequences", "number of decoding sequences", true, 1, 1 << 20}, point.sequences);
            inner.integer({"context", "tokens in the cache of each, on average", false, 0, 1 << 24}, point.context);
            inner.quantity({"time", "time of the iteration, without 'fixed'", true, 0, 100}, Dimension::time,
                           point.seconds);
        });
}

std::vector<std::string> problems_of(const GivenStepSpec& step) {
    std::vector<std::string> problems;
    const DecodeTimes& few = step.decodes;
    const bool takes_time = few.fixed > 0 || (few.sequence > 0 && step.token > 0) || !step.table.empty();
    if (!takes_time) {
        problems.emplace_back(
            "'step_cost' leaves iterations that take no time: say 'fixed', or 'token' and 'sequence'");
    }
    if (step.table.empty()) {
        return problems;
    }
    if (few.sequence > 0 || few.context > 0 || step.many > 0) {
        problems.emplace_back(
            "'step_cost' has a 'table' beside 'sequence', 'context' or 'beyond': it says what they say");
    }
    std::set<std::int64_t> rows;
    std::set<std::int64_t> columns;
    std::set<std::pair<std::int64_t, std::int64_t>> points;
    for (const StepPoint& point : step.table) {
        rows.insert(point.sequences);
        columns.insert(point.context);
        if (!points.emplace(point.sequences, point.context).second) {
            problems.push_back(fmt::format("'step_cost.table' has two times for {} sequences of context {}",
                                           point.sequences, point.context));
        }
        if (point.seconds <= 0) {
            problems.push_back(fmt::format("'step_cost.table' has no time for {} sequences of context {}",
                                           point.sequences, point.context));
        }
    }
    constexpr std::size_t kMostNamed = 5;
    std::size_t missing = 0;
    for (const std::int64_t sequences : rows) {
        for (const std::int64_t context : columns) {
            if (!points.contains({sequences, context}) && ++missing <= kMostNamed) {
                problems.push_back(fmt::format("'step_cost.table' has a gap: no time for {} sequences of context {}",
                                               sequences, context));
            }
        }
    }
    if (missing > kMostNamed) {
        problems.push_back(fmt::format("'step_cost.table' has {} more gaps", missing - kMostNamed));
    }
    return problems;
}

GivenStep::GivenStep(const GivenStepSpec& step) : step_(step) {
    ORRERY_ASSERT(problems_of(step).empty());
    std::sort(step_.table.begin(), step_.table.end(), [](const StepPoint& a, const StepPoint& b) {
        return std::pair(a.sequences, a.context) < std::pair(b.sequences, b.context);
    });
    for (const StepPoint& point : step_.table) {
        if (point.sequences == step_.table.front().sequences) {
            contexts_.push_back(static_cast<double>(point.context));
        }
        if (point.context == step_.table.front().context) {
            sequences_.push_back(static_cast<double>(point.sequences));
        }
        seconds_.push_back(point.seconds);
    }
    ORRERY_ASSERT(seconds_.size() == sequences_.size() * contexts_.size());
}

std::unique_ptr<StepCost> make_step(const ServingModel& model) {
    if (model.given != nullptr) {
        return std::make_unique<GivenStep>(*model.given);
    }
    auto step = std::make_unique<ModelStep>(model);
    if (model.streamed.given) {
        return std::make_unique<StreamedStep>(std::move(step), model);
    }
    return step;
}

double GivenStep::of_table(double sequences, double context) const {
    if (sequences > sequences_.back() || context > contexts_.back()) {
        throw InfeasibleError(
            fmt::format("an iteration decodes {:.0f} sequences of {:.0f} tokens on average, but "
                        "'step_cost.table' ends at {:.0f} sequences and {:.0f} tokens",
                        sequences, context, sequences_.back(), contexts_.back()));
    }
    const auto [row, down] = between(sequences_, sequences);
    const auto place = between(contexts_, context);
    const auto of_row = [&](std::size_t i) {
        const double* at = &seconds_[i * contexts_.size() + place.first];
        return place.second > 0 ? at[0] + place.second * (at[1] - at[0]) : at[0];
    };
    return down > 0 ? of_row(row) + down * (of_row(row + 1) - of_row(row)) : of_row(row);
}

StepWork GivenStep::work(const Batch& batch) {
    double prompts = 0;
    double decoding = batch.padded + batch.drafted;
    double running = 0;
    double context = 0;
    for (const BatchItem& item : batch.items) {
        if (item.tokens == 1) {
            ++running;
            context += item.context;
        } else {
            const double tokens = item.tokens;
            // A batch item's context counts its own tokens already.
            prompts += tokens * (step_.token + step_.square * item.context);
        }
    }
    decoding += running;
    const DecodeTimes& times =
        step_.many > 0 && decoding >= static_cast<double>(step_.many) ? step_.beyond : step_.decodes;
    double decodes = 0;
    if (decoding > 0) {
        decodes = step_.table.empty() ? times.sequence * decoding + times.context * context
                                      : of_table(decoding, running > 0 ? context / running : 0);
    }
    const double both = prompts > 0 && decodes > 0 ? step_.mixed : 1;
    const double seconds = times.fixed + both * (prompts + decodes);
    return {seconds, seconds, 0, 0, 0};
}

}  // namespace orrery::serving
