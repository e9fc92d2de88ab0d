#include "sim/record/metric_table.hpp"
#include "tools/driver/kind.hpp"
#include "tools/report/page.hpp"
#include "tools/report/report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>

namespace orrery::report {

using namespace report;
using Json = nlohmann::ordered_json;

namespace {

Json cell_json(const Cell& cell) {
    if (const double* number = std::get_if<double>(&cell)) {
        return rounded(*number);
    }
    return std::holds_alternative<std::string>(cell) ? Json(std::get<std::string>(cell)) : Json();
}

// What the points are judged by: the headline of their kind where it was kept, and else what the sweep names first.
std::string lead_of(const std::vector<std::string>& metrics) {
    for (const KindRow* kind : scenario_kinds()) {
        const std::string headline = kind->headline;
        if (std::find(metrics.begin(), metrics.end(), headline) != metrics.end()) {
            return headline;
        }
    }
    return metrics.empty() ? "" : metrics.front();
}

// An overloaded point has no steady state, and its latencies say how long it was looked at.
bool overloaded(const ResultTable& table, const std::vector<Cell>& row) {
    const auto column = std::find(table.columns.begin(), table.columns.end(), "overloaded");
    if (column == table.columns.end()) {
        return false;
    }
    const double* value = std::get_if<double>(&row[static_cast<std::size_t>(column - table.columns.begin())]);
    return value != nullptr && *value > 0;
}

// Points without results, and why.
Json left_out(const ResultTable& table, std::size_t status) {
    Json columns = Json::array({table.columns[0]});
    const std::size_t message = table.columns.size() - 1;
    for (std::size_t c = 1; c <= status; ++c) {
        columns.push_back(table.columns[c]);
    }
    columns.push_back(table.columns[message]);
    Json rows = Json::array();
    for (const auto& row : table.rows) {
        if (row[status] != Cell(std::string("done"))) {
            Json cells = Json::array();
            for (std::size_t c = 0; c <= status; ++c) {
                cells.push_back(cell_json(row[c]));
            }
            cells.push_back(cell_json(row[message]));
            rows.push_back(std::move(cells));
        }
    }
    return {{"kind", "table"}, {"title", "Points without results"}, {"columns", columns}, {"rows", std::move(rows)}};
}

}  // namespace

std::string sweep_report(const std::string& name, const ResultTable& table, const std::vector<std::string>& keys,
                         const std::vector<std::string>& metrics) {
    const std::size_t status = table.column("status");
    double done = 0;
    double infeasible = 0;
    double over = 0;
    Json rows = Json::array();
    for (const auto& row : table.rows) {
        done += row[status] == Cell(std::string("done")) ? 1 : 0;
        over += overloaded(table, row) ? 1 : 0;
        infeasible += row[status] == Cell(std::string("infeasible")) ? 1 : 0;
        Json cells = Json::array();
        for (const Cell& cell : row) {
            cells.push_back(cell_json(cell));
        }
        rows.push_back(std::move(cells));
    }
    const auto points = static_cast<double>(table.rows.size());
    Json tiles = Json::array();
    std::string verdict;
    const std::string lead = lead_of(metrics);
    if (!metrics.empty() && done > 0) {
        const std::string& metric = lead;
        const bool lower = better_of(metric) != Better::higher;
        const std::size_t column = table.column(metric);
        const std::vector<Cell>* best = nullptr;
        for (const auto& row : table.rows) {
            if (std::holds_alternative<double>(row[column]) && !overloaded(table, row) &&
                (best == nullptr || (std::get<double>(row[column]) < std::get<double>((*best)[column])) == lower)) {
                best = &row;
            }
        }
        if (best != nullptr) {
            tiles.push_back(Tile{"best " + metric, std::get<double>((*best)[column]),
                                 fmt::format("{:.5g}", std::get<double>((*best)[column]))});
            std::string setting;
            for (const std::string& key : keys) {
                setting +=
                    fmt::format("{}{} {}", setting.empty() ? "" : ", ", key, cell_text((*best)[table.column(key)]));
            }
            verdict = fmt::format("Best {}: {:.5g} at point {}: {}.", metric, std::get<double>((*best)[column]),
                                  cell_text((*best)[0]), setting);
        }
    }
    tiles.push_back(Tile{"points", points, fmt::format("{:.0f}", points)});
    tiles.push_back(Tile{"done", done, fmt::format("{:.0f}", done)});
    if (over > 0) {
        tiles.push_back(Tile{"overloaded", over, fmt::format("{:.0f}", over)});
    }
    tiles.push_back(Tile{"infeasible", infeasible, fmt::format("{:.0f}", infeasible)});
    tiles.push_back(
        Tile{"failed or invalid", points - done - infeasible, fmt::format("{:.0f}", points - done - infeasible)});
    Json higher = Json::array();  // metrics of which more is better
    std::copy_if(metrics.begin(), metrics.end(), std::back_inserter(higher),
                 [](const std::string& metric) { return better_of(metric) == Better::higher; });
    Json blocks = Json::array();
    blocks.push_back({{"kind", "tiles"}, {"items", tiles}});
    blocks.push_back({{"kind", "explore"},
                      {"title", "Curves and heat map"},
                      {"columns", table.columns},
                      {"rows", rows},
                      {"keys", keys},
                      {"metrics", metrics},
                      {"lead", lead},
                      {"higher", higher}});
    if (done < points) {
        blocks.push_back(left_out(table, status));
    }
    blocks.push_back({{"kind", "table"},
                      {"title", "Points"},
                      {"columns", table.columns},
                      {"meanings", meanings_of<Json>(metrics)},
                      {"rows", std::move(rows)}});
    return page(name, "sweep", verdict, blocks);
}

}  // namespace orrery::report
