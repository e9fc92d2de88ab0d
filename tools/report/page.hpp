#pragma once
// What all reports are made of: the page around the blocks, and numbers as text. Blocks are JSON, which report.js draws; the
// templates keep its library out of this header.

#include <string>

namespace orrery::report {

/// The whole file; `blocks`: a JSON array as text.
[[nodiscard]] std::string page_of(const std::string& title, const std::string& subtitle, const std::string& verdict,
                                  const std::string& blocks);
template <typename Json>
[[nodiscard]] std::string page(const std::string& title, const std::string& subtitle, const std::string& verdict,
                               const Json& blocks) {
    return page_of(title, subtitle, verdict, blocks.dump(-1, ' ', true, Json::error_handler_t::replace));
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
