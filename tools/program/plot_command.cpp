// orrery plot: charts as SVG.

#include "sim/record/metric_table.hpp"
#include "tools/driver/kind.hpp"
#include "tools/program/command_line.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/report/report.hpp"
#include "tools/report/topology_svg.hpp"
#include "tools/sweep/expression.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery::program {

namespace {

constexpr std::size_t kTimelineRows = 32;

std::string plot_scenario(const std::string& kind, const CommandLine& line, const DataDirectory& data) {
    const Scenario scenario = load_scenario(line.arguments[1], line.overrides(), data);
    check_outputs(line, files_of(scenario));
    ModelCache models(data);
    const ChartStyle style;
    Progress progress(line.terminal(), "simulating");
    if (kind == "fabric") {
        const Explanation why = explain_scenario(scenario, models);
        const Fabric fabric(shape_of(scenario.cluster, scenario.cluster_mark));
        return fabric.as_tree() == nullptr ? topology_svg(fabric, why.link_loads, style)
                                           : fabric_svg(fabric_layers(scenario, why.link_use), style);
    }
    RunOptions options;
    options.timeline = kind == "timeline";
    options.progress = [&](double fraction) { progress.update(fraction); };
    const RunOutput out = run_scenario(scenario, models, options);
    const TimelineRows rows =
        scenario.kind().drawing == TimelineDrawing::ranks ? TimelineRows::processes : TimelineRows::streams;
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
        throw ConfigError(fmt::format("this chart needs --{} COLUMN", option), ErrorCode::command_line);
    }
    return line.text(option);
}

// "MFU (higher is better)"
std::string titled(const std::string& metric) {
    const std::string better = better_text(metric);
    return better.empty() ? axis_name(metric) : fmt::format("{} ({})", axis_name(metric), better);
}

// Which way a column is better: as the command line says, else as the metric is. Throws ConfigError where neither tells.
Better better_side(const CommandLine& line, const std::string& column) {
    const auto said = [&](const char* option) {
        const std::vector<std::string> names = line.list(option);
        return std::find(names.begin(), names.end(), column) != names.end();
    };
    const Better better = said("lower") ? Better::lower : said("higher") ? Better::higher : better_of(column);
    if (better == Better::neither) {
        throw ConfigError(
            fmt::format("'{0}' is better neither lower nor higher by itself: say --lower {0} or --higher {0}", column),
            ErrorCode::command_line);
    }
    return better;
}

bool is_number(const Cell& cell) {
    return std::holds_alternative<double>(cell) || std::holds_alternative<double>(value_of_text(cell_text(cell)));
}

// An axis of words: bars, a group for each row of the pivot.
std::string plot_groups(const ResultTable& pivoted, const std::string& y) {
    std::vector<std::string> series;
    for (std::size_t c = 1; c < pivoted.columns.size(); ++c) {
        series.push_back(pivoted.columns[c]);
    }
    std::vector<std::string> groups;
    std::vector<std::vector<std::optional<double>>> values;
    for (const auto& row : pivoted.rows) {
        groups.push_back(cell_text(row[0]));
        auto& own = values.emplace_back();
        for (std::size_t c = 1; c < row.size(); ++c) {
            own.push_back(std::holds_alternative<double>(row[c]) ? std::optional<double>(std::get<double>(row[c]))
                                                                 : std::nullopt);
        }
    }
    return groups_svg(titled(y), groups, series, values, ChartStyle());
}

// The pivot gives one row for each x and one column for each value of `by`.
std::string plot_curves(const ResultTable& table, const CommandLine& line) {
    TableOptions options;
    const std::string x = needed(line, "x");
    const std::string y = needed(line, "y");
    const std::string by = line.has("by") ? line.text("by") : "status";
    options.pivot = {x, by, y};
    const ResultTable pivoted = select(table, options);
    if (std::any_of(pivoted.rows.begin(), pivoted.rows.end(), [](const auto& row) { return !is_number(row[0]); })) {
        return plot_groups(pivoted, y);
    }
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
    return curves_svg(titled(y), x, y, series, ChartStyle());
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
    return heat_svg("mean " + titled(value), x, y, columns, rows, cells, ChartStyle());
}

std::string plot_pareto(const ResultTable& table, const CommandLine& line) {
    const std::string x = line.has("x") ? line.text("x") : "memory_per_gpu_gib";
    const std::string y = line.has("y") ? line.text("y") : "iteration_time_s";
    const std::size_t xc = table.column(x);
    const std::size_t yc = table.column(y);
    const Better x_better = better_side(line, x);
    const Better y_better = better_side(line, y);
    // By what --by names, with the number of each point.
    std::map<std::string, CurveSeries> groups;
    std::vector<std::pair<std::pair<double, double>, std::string>> points;
    for (const auto& row : table.rows) {
        if (std::holds_alternative<double>(row[xc]) && std::holds_alternative<double>(row[yc])) {
            const std::string group =
                line.has("by") ? line.text("by") + " " + cell_text(row[table.column(line.text("by"))]) : "points";
            points.push_back({{std::get<double>(row[xc]), std::get<double>(row[yc])},
                              "point " + cell_text(row[table.column("point")])});
            CurveSeries& own = groups.try_emplace(group, CurveSeries{group, {}, false}).first->second;
            own.points.push_back(points.back().first);
        }
    }
    // From the best x on: a point is on the front when its y is better than that of all before.
    const auto before = [](Better better, double a, double b) { return better == Better::lower ? a < b : a > b; };
    std::stable_sort(points.begin(), points.end(), [&](const auto& left, const auto& right) {
        const auto& [a, b] = std::pair(left.first, right.first);
        return a.first != b.first ? before(x_better, a.first, b.first) : before(y_better, a.second, b.second);
    });
    CurveSeries front{"front", {}, true};
    std::vector<std::pair<std::pair<double, double>, std::string>> on_front;
    for (const auto& point : points) {
        if (on_front.empty() || before(y_better, point.first.second, on_front.back().first.second)) {
            on_front.push_back(point);
        }
    }
    std::sort(on_front.begin(), on_front.end());
    for (const auto& [point, name] : on_front) {
        front.points.push_back(point);
        front.labels.push_back(name);
    }
    // The front below, so that its points keep the colours of what they belong to.
    std::vector<CurveSeries> series = {std::move(front)};
    for (auto& [name, group] : groups) {
        series.push_back(std::move(group));
    }
    const auto word = [](Better better) { return better == Better::lower ? "lower" : "higher"; };
    return curves_svg(fmt::format("Pareto front: {} {} and {} {} is better", word(x_better), axis_name(x),
                                  word(y_better), axis_name(y)),
                      x, y, series, ChartStyle());
}

}  // namespace

int command_plot(const CommandLine& line, const DataDirectory& data) {
    const std::string& kind = line.arguments[0];
    std::vector<std::string> kinds;
    for (const ChoiceSpec& choice : plot_kinds()) {
        kinds.emplace_back(choice.name);
    }
    const auto found = std::find(kinds.begin(), kinds.end(), kind);
    if (found == kinds.end()) {
        throw ConfigError(fmt::format("unknown chart '{}'; it is one of {}", kind, fmt::join(kinds, ", ")),
                          ErrorCode::unknown_name);
    }
    std::string svg;
    if (found - kinds.begin() < 3) {
        svg = plot_scenario(kind, line, data);
    } else {
        TableOptions options;
        options.where = line.text("where");
        const ResultTable table = select(read_table(ResultStore(line.arguments[1], ResultStore::Mode::read)), options);
        svg = kind == "curves" ? plot_curves(table, line)
              : kind == "heat" ? plot_heat(table, line)
                               : plot_pareto(table, line);
    }
    write_output(line, "output", svg);
    return 0;
}

}  // namespace orrery::program
