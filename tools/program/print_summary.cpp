#include "tools/program/print_summary.hpp"

#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "tools/report/page.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::program {

std::string one_line(const Metric& metric) {
    if (!metric.measured()) {
        return "not measured";
    }
    if (metric.name == "overloaded") {
        return metric.value > 0 ? "yes" : "no";
    }
    const bool counts = metric.name == "messages" || metric.name.find("slowdown.") != std::string::npos;
    if (metric.unit == "1" && metric.value <= 1 && metric.value >= 0) {
        return counts ? fmt::format("{:.5g}", metric.value) : fmt::format("{:.2f} %", metric.value * 100);
    }
    return report::value_text(metric.value, metric.unit);
}

std::string interval_text(const Metric& metric) {
    if (!metric.low || !metric.high) {
        return "";
    }
    Metric low = metric;
    Metric high = metric;
    low.value = *metric.low;
    high.value = *metric.high;
    return fmt::format("{} to {}", one_line(low), one_line(high));
}

namespace {

constexpr const char* kQuantiles[] = {"mean", "p50", "p90", "p95", "p99", "max"};

// With what chance makes of it, where that is known: the wider side of its interval.
std::string with_half_width(const Metric& metric) {
    const std::string text = one_line(metric);
    if (!metric.low || !metric.high || !metric.measured() || !(metric.value > 0)) {
        return text;
    }
    const double half = std::max(metric.value - *metric.low, *metric.high - metric.value);
    return fmt::format("{} \u00b1{:.2g} %", text, 100 * half / metric.value);
}

// Metrics such as ttft_s.p99 as a row for each quantity, so that a reader compares down and across. A quantile that none has takes no
// column.
void print_quantiles(const Terminal& terminal, const Summary& summary) {
    std::vector<std::string> names;
    for (const Metric& first : summary.metrics) {
        const std::size_t dot = first.name.find(".mean");
        if (dot != std::string::npos && summary.find(first.name.substr(0, dot) + ".max") != nullptr) {
            names.push_back(first.name.substr(0, dot));
        }
    }
    std::vector<std::string> head = {""};
    std::vector<std::vector<std::string>> rows;
    for (const std::string& name : names) {
        rows.push_back({name});
    }
    for (const std::string quantile : kQuantiles) {
        const auto metric = [&](const std::string& name) { return summary.find(name + "." + quantile); };
        if (std::none_of(names.begin(), names.end(), metric)) {
            continue;
        }
        head.push_back(quantile);
        for (std::size_t i = 0; i < names.size(); ++i) {
            rows[i].push_back(metric(names[i]) != nullptr ? with_half_width(*metric(names[i])) : "-");
        }
    }
    if (!rows.empty()) {
        terminal.table(head, rows);
    }
}

bool is_quantile(const Metric& metric, const Summary& summary) {
    const std::size_t dot = metric.name.rfind('.');
    return dot != std::string::npos && summary.find(metric.name.substr(0, dot) + ".mean") != nullptr &&
           summary.find(metric.name.substr(0, dot) + ".max") != nullptr;
}

}  // namespace

std::string expectation_text(const ExpectationOutcome& outcome) {
    return fmt::format("{} is {}, expected {}", outcome.metric.name, one_line(outcome.metric), outcome.expected);
}

void print_expectations(const Summary& summary) {
    for (const ExpectationOutcome& one : summary.expectations) {
        fmt::print("{} {} {} ({})\n", one.met ? "\u2713" : "\u2717", printable(one.metric.name),
                   printable(one.expected), one_line(one.metric));
    }
}

void print_summary(const Terminal& terminal, const Summary& summary) {
    terminal.heading(fmt::format("{} ({})", summary.scenario, summary.kind));
    print_quantiles(terminal, summary);
    std::vector<std::vector<std::string>> rows;
    for (const Metric& metric : summary.metrics) {
        if (is_quantile(metric, summary)) {
            continue;
        }
        rows.push_back({metric.name, one_line(metric)});
        if (const std::string interval = interval_text(metric); !interval.empty()) {
            rows.back().push_back("90 %: " + interval);
        }
    }
    terminal.table({}, rows);
    if (!summary.breakdown.empty()) {
        double total = 0;
        for (const auto& [name, seconds] : summary.breakdown) {
            total += seconds;
        }
        terminal.heading("where the time goes (mean over ranks)");
        rows.clear();
        for (const auto& [name, seconds] : summary.breakdown) {
            const double share = total > 0 ? seconds / total : 0;
            rows.push_back(
                {name, report::seconds_text(seconds), fmt::format("{:5.1f} %", 100 * share), terminal.bar(share)});
        }
        terminal.table({}, rows);
    }
    for (const std::string& note : summary.notes) {
        fmt::print("{}{}\n", note.rfind("warning: ", 0) == 0 ? "" : "note: ", printable(note));
    }
    fmt::print("{} events in {:.3g} s, {:.0f} MiB\n", summary.events, summary.wall_time_s, summary.peak_rss_mib);
}

}  // namespace orrery::program
