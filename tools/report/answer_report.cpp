#include "tools/report/answer_report.hpp"

#include "tools/report/page.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace orrery::report {

using Json = nlohmann::ordered_json;

namespace {

Json story(const Answer& answer) {
    Json facts = Json::array();
    for (const auto& [name, text] : answer.facts) {
        if (!text.empty()) {
            facts.push_back({{"name", name}, {"text", text}});
        }
    }
    Json verdicts = Json::array();
    for (const auto& [met, text] : answer.verdicts) {
        verdicts.push_back({{"met", met}, {"text", text}});
    }
    return {{"kind", "story"}, {"facts", facts}, {"verdicts", verdicts}, {"findings", answer.findings}};
}

Json chart_block(const AnswerChart& chart) {
    std::vector<std::string> groups;
    for (const NamedPoint& point : chart.points) {
        if (std::find(groups.begin(), groups.end(), point.group) == groups.end()) {
            groups.push_back(point.group);
        }
    }
    Json series = Json::array();
    for (const std::string& group : groups) {
        Json points = Json::array();
        for (const NamedPoint& point : chart.points) {
            if (point.group == group) {
                points.push_back({rounded(point.x), rounded(point.y), point.name, point.on_front});
            }
        }
        series.push_back({{"name", group}, {"points", points}});
    }
    return {{"kind", "named"}, {"title", chart.title}, {"note", chart.note},    {"x", chart.x},
            {"y", chart.y},    {"groups", series},     {"joined", chart.joined}};
}

Json table_block(const AnswerTable& table) {
    Json rows = Json::array();
    for (const auto& row : table.table.rows) {
        Json cells = Json::array();
        for (const Cell& cell : row) {
            const double* number = std::get_if<double>(&cell);
            const auto* text = std::get_if<std::string>(&cell);
            cells.push_back(number != nullptr ? Json(rounded(*number)) : text != nullptr ? Json(*text) : Json());
        }
        rows.push_back(std::move(cells));
    }
    Json block = {{"kind", "table"}, {"title", table.title}, {"columns", table.table.columns}, {"rows", rows}};
    if (!table.folded) {
        return block;
    }
    block.erase("title");
    return {{"kind", "details"}, {"title", table.title}, {"blocks", Json::array({block})}};
}

}  // namespace

std::string answer_report(const Answer& answer) {
    Json blocks = Json::array({story(answer)});
    for (const AnswerChart& chart : answer.charts) {
        if (!chart.points.empty()) {
            blocks.push_back(chart_block(chart));
        }
    }
    for (const AnswerTable& table : answer.tables) {
        blocks.push_back(table_block(table));
    }
    if (!answer.notes.empty()) {
        blocks.push_back({{"kind", "text"}, {"title", "Notes"}, {"lines", answer.notes}});
    }
    return page(answer.title, answer.subtitle, "", blocks);
}

}  // namespace orrery::report
