// `orrery validate serving --log`: a scenario of the user's own against the latencies that its request trace logged.

#include "sim/base/input_file.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/run.hpp"
#include "validation/statistics.hpp"
#include "validation/validate.hpp"
#include "workloads/serving/requests/recorded/recorded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::validation {

namespace {

/// One latency of all requests that logged it, as logged and as predicted.
struct LoggedLatency {
    const char* name;
    std::vector<double> logged, predicted;

    void add(double was, double is) {
        logged.push_back(was);
        predicted.push_back(is);
    }
};

double quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    const auto at = static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
    return values[at];
}

double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) {
        sum += value;
    }
    return sum / static_cast<double>(values.size());
}

// Seconds of a cell; below 0 where it is empty or the table has no such column.
double logged_seconds(const FactsRow& row, const char* column) {
    const auto found = row.cells.find(column);
    if (found == row.cells.end() || found->second.empty()) {
        return -1;
    }
    const double value = row.number(column);
    if (!(value >= 0 && value < 1e7)) {
        throw ConfigError({Diagnostic{row.file, row.line, 1, fmt::format("{} is {:g} s", column, value),
                                      ErrorCode::malformed_trace}});
    }
    return value;
}

// Lengths and latencies of a trace: a table, or what a load generator saved.
std::vector<FactsRow> logged_rows(const std::string& trace, const std::string& format) {
    constexpr std::size_t kStart = 1 << 16;
    if (!may_be_recorded(start_of_input(trace, kStart))) {
        return read_facts_table(trace);
    }
    std::vector<FactsRow> rows;
    for (const RecordedRequest& one : read_recorded(read_input(trace), trace, format).requests) {
        FactsRow row{{{"prompt", fmt::format("{}", one.prompt)}}, trace, 0};
        if (one.ttft_s >= 0) {
            row.cells["ttft_s"] = fmt::format("{}", one.ttft_s);
        }
        if (one.e2e_s >= 0) {
            row.cells["e2e_s"] = fmt::format("{}", one.e2e_s);
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

std::vector<std::vector<std::string>> compared(const std::vector<LoggedLatency>& latencies) {
    std::vector<std::vector<std::string>> rows;
    for (const LoggedLatency& one : latencies) {
        if (one.logged.empty()) {
            continue;
        }
        const auto add = [&](const std::string& what, double was, double is) {
            rows.push_back({one.name, what, fmt::format("{:.4g} s", was), fmt::format("{:.4g} s", is),
                            was > 0 ? fmt::format("{:+.1f} %", 100 * (is / was - 1)) : "-"});
        };
        add("mean", mean(one.logged), mean(one.predicted));
        for (const auto& [what, q] : {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}}) {
            add(what, quantile(one.logged, q), quantile(one.predicted, q));
        }
        std::vector<double> errors;
        for (std::size_t i = 0; i < one.logged.size(); ++i) {
            if (one.logged[i] > 0) {
                errors.push_back(std::abs(one.predicted[i] / one.logged[i] - 1));
            }
        }
        if (!errors.empty()) {
            rows.push_back({one.name, "request by request", fmt::format("{} requests", errors.size()), "median error",
                            fmt::format("{:.1f} %", 100 * quantile(errors, 0.5))});
        }
    }
    return rows;
}

}  // namespace

Comparison validate_logged(ModelCache& models, const Terminal& terminal, const std::string& file) {
    const Scenario scenario = load_scenario(file, {}, models.data());
    if (scenario.find<ServingKind>() == nullptr || scenario.as<ServingKind>().requests.trace.empty()) {
        throw ConfigError(
            {Diagnostic{file, 0, 0, "is no serving scenario with a trace of requests, whose latencies to compare"}});
    }
    if (scenario.as<ServingKind>().requests.sample < 1 || scenario.as<ServingKind>().requests.from > 0) {
        throw ConfigError(
            {Diagnostic{file, 0, 0, "takes a part of its trace ('sample', 'from'): requests are compared one by one"}});
    }
    const RequestsSpec& requests = scenario.as<ServingKind>().requests;
    const std::string trace = scenario.file(requests.trace);
    const std::vector<FactsRow> rows = logged_rows(trace, requests.trace_format);
    if (rows.empty() || !(rows.front().cells.contains("ttft_s") || rows.front().cells.contains("e2e_s"))) {
        throw ConfigError({Diagnostic{trace, 0, 0, "logs no latency: it has neither 'ttft_s' nor 'e2e_s'",
                                      ErrorCode::malformed_trace}});
    }
    RunOptions options;
    options.requests = true;
    RunOutput out = run_scenario(scenario, models, options);
    std::sort(out.requests.begin(), out.requests.end(),
              [](const RequestRow& a, const RequestRow& b) { return a.id < b.id; });
    std::vector<LoggedLatency> latencies = {{"TTFT", {}, {}}, {"TPOT", {}, {}}, {"end to end", {}, {}}};
    Comparison comparison{"serving log",
                          "requests",
                          fmt::format("{} requests of {}", out.requests.size(), trace),
                          "",
                          {"latency"},
                          {},
                          {}};
    std::size_t unanswered = 0;
    for (std::size_t i = 0; i < out.requests.size(); ++i) {
        const RequestRow& is = out.requests[i];
        // Requests come in the order of their arrival, as a trace has them.
        if (i >= rows.size() || static_cast<std::uint32_t>(rows[i].number("prompt")) != is.prompt) {
            throw ConfigError(
                {Diagnostic{trace, i < rows.size() ? rows[i].line : 0, 0,
                            fmt::format("request {} of the run is not this one: the trace is to be in the order of "
                                        "arrival, and the scenario to change no prompt",
                                        i + 1),
                            ErrorCode::malformed_trace}});
        }
        if (is.ending != Ending::finished) {
            ++unanswered;
            continue;
        }
        const double ttft = logged_seconds(rows[i], "ttft_s");
        const double e2e = logged_seconds(rows[i], "e2e_s");
        const auto book = [&](LoggedLatency& latency, double was, double predicted) {
            latency.add(was, predicted);
            if (was > 0 && predicted > 0) {
                comparison.points.push_back({was, predicted, latency.name, fmt::format("request {}", i + 1), {}});
            }
        };
        if (ttft >= 0) {
            book(latencies[0], ttft, is.ttft);
        }
        if (ttft >= 0 && e2e >= ttft && is.output > 1) {
            book(latencies[1], (e2e - ttft) / (is.output - 1), is.tpot);
        }
        if (e2e >= 0) {
            book(latencies[2], e2e, is.e2e);
        }
    }
    ComparisonTable table{
        "predicted against logged latencies", {"latency", "", "logged", "predicted", "error"}, compared(latencies)};
    terminal.heading(table.title);
    terminal.table(table.columns, table.rows);
    if (unanswered > 0) {
        terminal.heading(fmt::format("{} requests were not answered in the simulation, and are left out", unanswered));
    }
    comparison.tables.push_back(std::move(table));
    return comparison;
}

}  // namespace orrery::validation
