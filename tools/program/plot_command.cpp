// orrery plot: charts as SVG.

#include "tools/driver/kind.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/report/report.hpp"
#include "tools/sweep/expression.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

namespace {

constexpr std::size_t kTimelineRows = 32;

std::string plot_scenario(const std::string& kind, const CommandLine& line, const DataDirectory& data) {
    const Scenario scenario = load_scenario(line.arguments[1], line.overrides(), data);
    check_outputs(line, files_of(scenario));
    ModelCache models(data);
    const ChartStyle style;
    if (kind == "fabric") {
        return fabric_svg(fabric_layers(scenario, explain(scenario, models).link_use), style);
    }
    RunOptions options;
    options.timeline = kind == "timeline";
    const RunOutput out = run(scenario, models, options);
    const TimelineRows rows =
        row_of(scenario.kind).drawing == TimelineDrawing::ranks ? TimelineRows::processes : TimelineRows::streams;
    return options.timeline ? timeline_svg(scenario.name, out.timeline, rows, kTimelineRows, style)
                            : bars_svg(scenario.name, out.summary.breakdown, style);
}

double number_of(const Cell& cell, const std::string& column) {
    if (const double* number = std::get_if<double>(&cell)) {
        return *number;
    }
    const ExpressionValue value = value_of_text(cell_text(cell));
    if (const double* number = std::get_if<double>(&value)) {
        return *number;
    }
    throw ConfigError(fmt::format("'{}' of column '{}' is no number", cell_text(cell), column));
}

std::string needed(const CommandLine& line, const char* option) {
    if (!line.has(option)) {
        throw ConfigError(fmt::format("this chart needs --{} COLUMN", option));
    }
    return line.text(option);
}

// The pivot gives one row for each x and one column for each value of `by`.
std::string plot_curves(const ResultTable& table, const CommandLine& line) {
    TableOptions options;
    const std::string x = needed(line, "x");
    const std::string y = needed(line, "y");
    const std::string by = line.has("by") ? line.text("by") : "status";
    options.pivot = {x, by, y};
    const ResultTable pivoted = select(table, options);
    std::vector<CurveSeries> series;
    for (std::size_t c = 1; c < pivoted.columns.size(); ++c) {
        CurveSeries s{pivoted.columns[c], {}, true};
        for (const auto& row : pivoted.rows) {
            if (std::holds_alternative<double>(row[c])) {
                s.points.emplace_back(number_of(row[0], x), std::get<double>(row[c]));
            }
        }
        series.push_back(std::move(s));
    }
    return curves_svg(y, x, y, series, ChartStyle());
}

std::string plot_heat(const ResultTable& table, const CommandLine& line) {
    TableOptions options;
    const std::string x = needed(line, "x");
    const std::string y = needed(line, "y");
    const std::string value = needed(line, "value");
    options.pivot = {y, x, value};
    const ResultTable pivoted = select(table, options);
    std::vector<std::string> columns;
    for (std::size_t c = 1; c < pivoted.columns.size(); ++c) {
        columns.push_back(pivoted.columns[c].substr(x.size() + 1));
    }
    std::vector<std::string> rows;
    std::vector<std::vector<std::optional<double>>> cells;
    for (const auto& row : pivoted.rows) {
        rows.push_back(cell_text(row[0]));
        std::vector<std::optional<double>> line_of_cells;
        for (std::size_t c = 1; c < row.size(); ++c) {
            line_of_cells.push_back(std::holds_alternative<double>(row[c])
                                        ? std::optional<double>(std::get<double>(row[c]))
                                        : std::nullopt);
        }
        cells.push_back(std::move(line_of_cells));
    }
    return heat_svg("mean " + value, x, y, columns, rows, cells, ChartStyle());
}

std::string plot_pareto(const ResultTable& table, const CommandLine& line) {
    const std::string x = line.has("x") ? line.text("x") : "memory_per_gpu_gib";
    const std::string y = line.has("y") ? line.text("y") : "iteration_time_s";
    const std::size_t xc = table.column(x);
    const std::size_t yc = table.column(y);
    CurveSeries points{"points", {}, false};
    for (const auto& row : table.rows) {
        if (std::holds_alternative<double>(row[xc]) && std::holds_alternative<double>(row[yc])) {
            points.points.emplace_back(std::get<double>(row[xc]), std::get<double>(row[yc]));
        }
    }
    std::sort(points.points.begin(), points.points.end());
    CurveSeries front{"front", {}, true};
    for (const auto& point : points.points) {
        if (front.points.empty() || point.second < front.points.back().second) {
            front.points.push_back(point);
        }
    }
    return curves_svg("Pareto front: less of both is better", x, y, {points, front}, ChartStyle());
}

}  // namespace

int command_plot(const CommandLine& line, const DataDirectory& data) {
    static const std::vector<std::string> kKinds = {"breakdown", "timeline", "fabric", "curves", "heat", "pareto"};
    const std::string& kind = line.arguments[0];
    const auto found = std::find(kKinds.begin(), kKinds.end(), kind);
    if (found == kKinds.end()) {
        throw ConfigError(fmt::format("unknown chart '{}'; it is one of {}", kind, fmt::join(kKinds, ", ")));
    }
    std::string svg;
    if (found - kKinds.begin() < 3) {
        svg = plot_scenario(kind, line, data);
    } else {
        TableOptions options;
        options.where = line.text("where");
        const ResultTable table = select(read_table(ResultStore(line.arguments[1], ResultStore::Mode::read)), options);
        svg = kind == "curves" ? plot_curves(table, line)
              : kind == "heat" ? plot_heat(table, line)
                               : plot_pareto(table, line);
    }
    write_file(line.has("output") ? line.text("output") : "-", svg);
    return 0;
}

}  // namespace orrery
