#include "sim/config/units.hpp"
#include "tools/report/page.hpp"
#include "validation/statistics.hpp"
#include "validation/validate.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>

namespace orrery::validation {

using namespace report;
using Json = nlohmann::ordered_json;

namespace {

constexpr double kBand = 0.1;

double error_of(const ScatterPoint& point) {
    return point.predicted / point.measured - 1;
}

// Cells that are numbers, alone or with a per cent sign, become numbers, so that a column of them sorts as such.
Json cell_of(const std::string& text) {
    double number = 0;
    const bool percent = text.ends_with(" %");
    return parse_number(percent ? text.substr(0, text.size() - 2) : text, number) ? Json(number) : Json(text);
}

struct Scores {
    double mean_of_groups = 0;  // of their mean absolute errors
    double median = 0;          // absolute error
    double within = 0;          // share within the band
};

Scores scores_of(const Comparison& comparison) {
    std::map<std::string, std::vector<double>> groups;
    std::vector<double> absolute;
    Scores out;
    for (const ScatterPoint& point : comparison.points) {
        groups[point.group].push_back(error_of(point));
        absolute.push_back(std::abs(error_of(point)));
        out.within += std::abs(error_of(point)) <= kBand ? 1.0 / static_cast<double>(comparison.points.size()) : 0;
    }
    for (const auto& [name, errors] : groups) {
        out.mean_of_groups += statistics_of(errors).mape / 100 / static_cast<double>(groups.size());
    }
    out.median = statistics_of(absolute).median_bias / 100;
    return out;
}

Json compare_block(const Comparison& comparison) {
    Json points = Json::array();
    for (const ScatterPoint& point : comparison.points) {
        Json row = {rounded(point.measured), rounded(point.predicted), point.label, point.group};
        for (const std::string& facet : point.facets) {
            row.push_back(facet);
        }
        points.push_back(std::move(row));
    }
    return {{"kind", "compare"},
            {"title", "Predicted against measured " + comparison.what},
            {"note", (comparison.note.empty() ? "" : comparison.note + " ") + "Dashed: 10 % to each side."},
            {"facets", comparison.facets},
            {"points", std::move(points)}};
}

Json table_block(const ComparisonTable& table) {
    std::vector<std::string> columns = table.columns;
    Json rows = Json::array();
    for (const auto& row : table.rows) {
        Json cells = Json::array();
        for (std::size_t i = 0; i < row.size(); ++i) {
            const Json cell = cell_of(row[i]);
            // The unit goes from the numbers to the head.
            if (cell.is_number() && row[i].ends_with(" %") && !columns[i].ends_with(" %")) {
                columns[i] += ", %";
            }
            cells.push_back(row[i].empty() ? Json() : cell);
        }
        rows.push_back(std::move(cells));
    }
    return {{"kind", "table"}, {"title", table.title}, {"columns", columns}, {"rows", std::move(rows)}};
}

}  // namespace

std::string validation_report(const std::vector<Comparison>& comparisons) {
    Json blocks = Json::array();
    std::string verdict;
    std::string names;
    for (const Comparison& comparison : comparisons) {
        const Scores scores = scores_of(comparison);
        const auto percent = [](double value) { return fmt::format("{:.2f} %", 100 * value); };
        // Tiles of several suites are told apart by their names.
        const std::string of = comparisons.size() > 1 ? comparison.suite + ": " : "";
        names += (names.empty() ? "" : ", ") + comparison.suite;
        blocks.push_back(
            {{"kind", "tiles"},
             {"items",
              {Tile{of + "points", static_cast<double>(comparison.points.size()),
                    std::to_string(comparison.points.size())},
               Tile{of + "median absolute error", 100 * scores.median, percent(scores.median)},
               Tile{of + "mean absolute error, mean over " + comparison.facets.front(), 100 * scores.mean_of_groups,
                    percent(scores.mean_of_groups)},
               Tile{of + "within 10 %", 100 * scores.within, fmt::format("{:.1f} %", 100 * scores.within)}}}});
        if (!comparison.first.empty()) {
            verdict += (verdict.empty() ? "" : " ") + comparison.first;
        }
        verdict += fmt::format("{}{} {}: {:.0f} % are within 10 %, half within {:.1f} %.", verdict.empty() ? "" : " ",
                               comparison.points.size(), comparison.what, 100 * scores.within, 100 * scores.median);
        if (!comparison.points.empty()) {
            blocks.push_back(compare_block(comparison));
        }
        for (const ComparisonTable& table : comparison.tables) {
            blocks.push_back(table_block(table));
        }
    }
    return page("Validation: " + names, "predictions against what was measured", verdict, blocks);
}

}  // namespace orrery::validation
