#pragma once
// What all reports are made of: the page around the blocks, and numbers as text. Blocks are JSON, which report.js draws; the
// templates keep its library out of this header.

#include "sim/record/metric_table.hpp"

#include <string>
#include <vector>

namespace orrery::report {

/// The whole file; `blocks`: a JSON array as text.
[[nodiscard]] std::string page_of(const std::string& title, const std::string& subtitle, const std::string& verdict,
                                  const std::string& blocks);
template <typename Json>
[[nodiscard]] std::string page(const std::string& title, const std::string& subtitle, const std::string& verdict,
                               const Json& blocks) {
    return page_of(title, subtitle, verdict, blocks.dump(-1, ' ', true, Json::error_handler_t::replace));
}

/// What those of these names that are metrics mean, by name: tables show it where a cell or the head of a column is such a name.
template <typename Json>
[[nodiscard]] Json meanings_of(const std::vector<std::string>& names) {
    Json out = Json::object();
    for (const std::string& name : names) {
        if (const MetricRow* row = row_of_metric(name); row != nullptr) {
            out[name] = row->meaning;
        }
    }
    return out;
}

/// Twelve digits: what JSON summaries keep.
[[nodiscard]] double rounded(double value);
[[nodiscard]] std::string seconds_text(double seconds);
/// A metric's value with its unit as a reader wants it.
[[nodiscard]] std::string value_text(double value, const std::string& unit);

/// A headline number; converts to JSON.
struct Tile {
    std::string name;
    double value = 0;
    std::string text;
};
template <typename Json>
void to_json(Json& json, const Tile& tile) {
    json = {{"name", tile.name}, {"value", rounded(tile.value)}, {"text", tile.text}};
}

}  // namespace orrery::report
