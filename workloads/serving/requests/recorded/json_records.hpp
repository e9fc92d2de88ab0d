#pragma once
// What the formats of recorded requests share. <nlohmann/json.hpp>, which stays out of headers, comes before this one.

#include "sim/base/namespaces.hpp"
#include "workloads/serving/requests/recorded/recorded.hpp"

#include <initializer_list>

namespace orrery::serving {

/// What is wrong with a file, and the key in it where it stands; empty: the whole of it.
struct BadRecord {
    std::string problem, key;
};

/// A file as the rows see it: one JSON document, or the maps of its lines.
struct JsonRecords {
    std::vector<nlohmann::json> maps;
    bool lines = false;  ///< one map a line
};

/// The number of a map's first key of these; nothing where it has none, or one that is no number.
[[nodiscard]] std::optional<double> number_of(const nlohmann::json& map, std::initializer_list<const char*> keys);
/// The same, which must be there. Throws BadRecord with the place of request `index`.
[[nodiscard]] double needed_number(const nlohmann::json& map, std::initializer_list<const char*> keys,
                                   std::size_t index);
/// Tokens of a text, of four characters each.
[[nodiscard]] double tokens_of_text(const nlohmann::json& text);

}  // namespace orrery::serving
