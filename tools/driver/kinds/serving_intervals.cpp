#include "tools/driver/kinds/serving_intervals.hpp"

#include "sim/base/math.hpp"
#include "sim/config/units.hpp"
#include "sim/record/batch_means.hpp"
#include "tools/driver/kinds/interval.hpp"
#include "tools/driver/kinds/serving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace orrery::driver {

namespace {

constexpr std::size_t kGroups = 16;
constexpr double kConfidence = 0.9;

void bound(Summary& summary, const std::string& name, double low, double high) {
    ORRERY_ASSERT(!(low > high));
    for (Metric& metric : summary.metrics) {
        if (metric.name == name && metric.measured()) {
            metric.low = low;
            metric.high = high;
        }
    }
}

// Counts of equal parts of the values, one after another.
BatchEstimate mean_of(const std::vector<double>& values) {
    ORRERY_ASSERT(values.size() >= kGroups);  // each group has some
    return ratio_of_batches(grouped(values, kGroups),
                            std::vector<double>(kGroups, static_cast<double>(values.size() / kGroups)), kConfidence);
}

void bound_latency(Summary& summary, const std::string& name, const std::vector<double>& values) {
    if (values.size() < kGroups) {
        return;
    }
    const BatchEstimate mean = mean_of(values);
    bound(summary, name + ".mean", mean.value - mean.half_width, mean.value + mean.half_width);
    std::vector<double> ordered = values;
    std::sort(ordered.begin(), ordered.end());
    const auto at = [&](double q) {
        const auto n = static_cast<double>(ordered.size());
        return ordered[static_cast<std::size_t>(std::clamp(q * n, 0.0, n - 1))];
    };
    for (const auto& [suffix, q] : {std::pair{".p50", 0.5}, {".p90", 0.9}, {".p99", 0.99}}) {
        std::vector<double> below;
        below.reserve(values.size());
        for (const double value : values) {
            below.push_back(value <= at(q) ? 1 : 0);
        }
        const double half = mean_of(below).half_width;
        bound(summary, name + suffix, at(q - half), at(q + half));
    }
}

bool is_cost(std::string_view metric) {
    return metric.starts_with("cost_per_million_");
}

void bound_rates(const ServiceResult& result, Summary& summary) {
    const SteadyRun& steady = *result.steady;
    if (steady.seconds.empty() || !(result.window_s > 0)) {
        return;
    }
    ORRERY_ASSERT(steady.finished.size() == steady.seconds.size() && steady.tokens.size() == steady.seconds.size());
    const BatchEstimate requests = ratio_of_batches(steady.finished, steady.seconds, kConfidence);
    const BatchEstimate tokens = ratio_of_batches(steady.tokens, steady.seconds, kConfidence);
    for (const auto& [name, rate] : {std::pair{"requests_per_s", requests}, {"output_tokens_per_s", tokens}}) {
        if (const Metric* metric = summary.find(name)) {
            bound(summary, name, metric->value - rate.half_width, metric->value + rate.half_width);
        }
    }
    const double part = tokens.relative();
    for (const Metric& cost : summary.metrics) {
        if (is_cost(cost.name) && part < 1) {
            bound(summary, cost.name, cost.value / (1 + part), cost.value / (1 - part));
        }
    }
}

// Widens by a half-width of log(value) that is independent of what bounds the metric already.
void widen(Metric& metric, double width) {
    if (!metric.measured() || !(metric.value > 0)) {
        return;
    }
    ORRERY_ASSERT(width >= 0);
    const auto factor = [&](double chance) { return exp_pinned(std::sqrt(chance * chance + width * width)); };
    const double up = metric.high ? std::log(*metric.high / metric.value) : 0;
    metric.high = metric.value * factor(std::max(0.0, up));
    ORRERY_ASSERT(*metric.high >= metric.value);
    if (!metric.low || *metric.low > 0) {
        const double down = metric.low ? std::log(metric.value / *metric.low) : 0;
        metric.low = metric.value / factor(std::max(0.0, down));
        ORRERY_ASSERT(*metric.low <= metric.value);
    }
}

}  // namespace

ModelWidths widths_of(const HostSpec& software, bool experts) {
    const bool own = experts ? software.has_experts_interval : software.has_interval;
    if (!own) {
        return experts ? kExpertsWidths : kDenseWidths;
    }
    const LatencyWidths& widths = experts ? software.experts_interval : software.interval;
    return {widths.tpot.value, widths.ttft.value, widths.end_to_end.value};
}

double products_spread(const CostModel& device, const ModelSpec& model) {
    constexpr double kDecodes = 64;
    constexpr double kShapes = 8;  // distinct ones of a layer, whose own errors average
    const auto hidden = static_cast<double>(model.hidden);
    const Cost product = device.cost(Gemm{kDecodes, hidden, hidden, 1, Precision::bf16});
    return std::sqrt(product.systematic * product.systematic + product.spread * product.spread / kShapes);
}

void add_model_error(const Scenario& scenario, double spread, Summary& summary) {
    const auto& serving = scenario.as<ServingKind>();
    const auto& engine = serving.engine;
    if (!engine.has_software) {
        return;
    }
    const double beyond = square_beyond(spread);
    const bool experts = serving.model.experts.count > 0;
    ModelWidths left = widths_of(engine.software, experts);
    if (engine.split) {
        left = {std::max(left.tpot, kSplitWidths.tpot), std::max(left.ttft, kSplitWidths.ttft),
                std::max(left.end_to_end, kSplitWidths.end_to_end)};
    }
    const Metric* overloaded = summary.find("overloaded");
    const ArrivalKind arrivals = serving.requests.arrivals;
    const bool bound = arrivals == ArrivalKind::closed || arrivals == ArrivalKind::at_once ||
                       (overloaded != nullptr && overloaded->value > 0);
    for (Metric& metric : summary.metrics) {
        const std::string_view name = metric.name;
        double width = 0;
        if (name.ends_with(".max")) {
            continue;
        }
        if (name.starts_with("tpot_s")) {
            width = left.tpot;
        } else if (name.starts_with("ttft_s")) {
            width = left.ttft;
        } else if (name.starts_with("e2e_s")) {
            width = left.end_to_end;
        } else if (bound && (name == "requests_per_s" || name == "output_tokens_per_s" || is_cost(name))) {
            width = left.end_to_end;
        }
        if (width > 0) {
            widen(metric, std::sqrt(width * width + beyond));
        }
    }
    const bool own = experts ? engine.software.has_experts_interval : engine.software.has_interval;
    summary.notes.push_back(
        fmt::format("low and high of latencies cover the model's errors in nine of ten measured runs of {}",
                    engine.split ? "disaggregated serving"
                    : own        ? "this engine"
                                 : "all engines"));
}

void add_steady_state(const ServiceResult& result, Summary& summary) {
    const SteadyRun& steady = *result.steady;
    const auto time = [](double seconds) { return pretty_quantity(seconds, Dimension::time); };
    summary.add("overloaded", steady.overloaded ? 1 : 0, "1");
    if (steady.overloaded) {
        summary.add("sustainable_rps", steady.sustainable_rps, "1/s");
        summary.notes.push_back(fmt::format(
            "warning: overloaded: {:.4g} requests come per second and {:.4g} are served, so the queue grows without "
            "bound. "
            "Latencies are those of the first {} and would grow with every longer run; rates are of what is served",
            steady.offered_rps, steady.sustainable_rps, time(steady.warm_up_s + result.window_s)));
    } else {
        const std::vector<std::pair<const char*, float RequestOutcome::*>> latencies = {
            {"ttft_s", &RequestOutcome::ttft}, {"tpot_s", &RequestOutcome::tpot}, {"e2e_s", &RequestOutcome::e2e}};
        for (const auto& [name, member] : latencies) {
            std::vector<double> values;
            for (const RequestOutcome& request : result.requests) {
                // Outputs of one token have no time per token.
                if (member != &RequestOutcome::tpot || request.tpot > 0) {
                    values.push_back(static_cast<double>(request.*member));
                }
            }
            bound_latency(summary, name, values);
        }
        if (const Metric* attainment = summary.find("slo_attainment");
            attainment != nullptr && result.unserved == 0 && result.requests.size() >= kGroups) {
            std::vector<double> in_time;
            for (const RequestOutcome& request : result.requests) {
                in_time.push_back(request.in_time ? 1 : 0);
            }
            const double half = mean_of(in_time).half_width;
            bound(summary, "slo_attainment", std::max(0.0, attainment->value - half),
                  std::min(1.0, attainment->value + half));
        }
        bound_rates(result, summary);
        summary.notes.push_back(fmt::format(
            "steady state: {} requests in {} are measured, after a warm-up of {} requests in {}; low and high are "
            "90 % bounds of chance{}",
            steady.measured, time(result.window_s), steady.warm_up, time(steady.warm_up_s),
            steady.precise ? "" : ", wider than they should be: a longer run needs a 'count'"));
    }
}

}  // namespace orrery::driver
