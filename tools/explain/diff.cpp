#include "tools/explain/diff.hpp"

#include "tools/driver/kind.hpp"
#include "tools/explain/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::explain {

namespace {

constexpr std::size_t kMostReverted = 30;

std::vector<Span> in_time_order(std::vector<Span> spans) {
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
        return std::make_tuple(a.start_us, a.process, a.thread) < std::make_tuple(b.start_us, b.process, b.thread);
    });
    return spans;
}

std::string text_of(const Span& span) {
    return fmt::format("at {:.6f} ms rank {} {} for {:.6f} ms", span.start_us * 1e-3, span.process, span.name,
                       span.duration_us * 1e-3);
}

void find_first_difference(const Timeline& first, const Timeline& second, RunDifference& out) {
    const std::vector<Span> a = in_time_order(first.spans);
    const std::vector<Span> b = in_time_order(second.spans);
    std::size_t i = 0;
    while (i < a.size() && i < b.size() && text_of(a[i]) == text_of(b[i])) {
        ++i;
    }
    out.equal_records = i;
    if (i < a.size() || i < b.size()) {
        out.first_record = i < a.size() ? text_of(a[i]) : "no more records";
        out.second_record = i < b.size() ? text_of(b[i]) : "no more records";
    }
}

// A run with its timeline where it can be drawn.
RunOutput drawn(const Scenario& scenario, ModelCache& models) {
    RunOptions options;
    options.timeline = true;
    try {
        return run_scenario(scenario, models, options);
    } catch (const ConfigError&) {
        return run_scenario(scenario, models, {});  // too many messages to draw
    }
}

}  // namespace

RunDifference compare_runs(const Scenario& first, const Scenario& second, ModelCache& models) {
    if (&first.kind() != &second.kind()) {
        throw ConfigError("these scenarios are of different kinds and have no metric in common");
    }
    RunDifference out;
    out.metric = headline_metric(first.kind());
    const RunOutput a = drawn(first, models);
    const RunOutput b = drawn(second, models);
    out.first_s = a.summary.find(out.metric)->value;
    out.second_s = b.summary.find(out.metric)->value;
    for (const Metric& metric : a.summary.metrics) {
        const Metric* other = b.summary.find(metric.name);
        out.metrics.emplace_back(metric.name, metric.value,
                                 other != nullptr ? std::optional<double>(other->value) : std::nullopt, metric.unit);
    }
    std::vector<std::string> names;
    for (const auto* breakdown : {&a.summary.breakdown, &b.summary.breakdown}) {
        for (const auto& [name, seconds] : *breakdown) {
            if (std::find(names.begin(), names.end(), name) == names.end()) {
                names.push_back(name);
            }
        }
    }
    const std::map<std::string, double> parts_a(a.summary.breakdown.begin(), a.summary.breakdown.end());
    const std::map<std::string, double> parts_b(b.summary.breakdown.begin(), b.summary.breakdown.end());
    // A breakdown names each of its parts once.
    ORRERY_ASSERT(parts_a.size() == a.summary.breakdown.size() && parts_b.size() == b.summary.breakdown.size());
    for (const std::string& name : names) {
        out.breakdown.emplace_back(name, parts_a.contains(name) ? parts_a.at(name) : 0,
                                   parts_b.contains(name) ? parts_b.at(name) : 0);
    }
    std::size_t tried = 0;
    for (const ChangedInput& change :
         changes_between(inputs_of(first, models.data()), inputs_of(second, models.data()))) {
        InputEffect effect{change, std::nullopt};
        if (const auto reverted = with_reverted(second, change, models.data()); reverted && ++tried <= kMostReverted) {
            try {
                effect.seconds = out.second_s - run_scenario(*reverted, models, {}).summary.find(out.metric)->value;
            } catch (const Error&) {
                // Put back alone it does not run: degrees of a plan change together.
            }
        }
        out.inputs.push_back(std::move(effect));
    }
    std::stable_sort(out.inputs.begin(), out.inputs.end(), [](const InputEffect& x, const InputEffect& y) {
        return std::abs(x.seconds.value_or(0)) > std::abs(y.seconds.value_or(0));
    });
    ORRERY_ASSERT(names.size() <= parts_a.size() + parts_b.size() &&
                  names.size() >= std::max(parts_a.size(), parts_b.size()));
    find_first_difference(a.timeline, b.timeline, out);
    return out;
}

}  // namespace orrery::explain
