#include "workloads/replay/importers/json_text.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace orrery::inline replay {

Diagnostic json_problem(const std::string& file, const nlohmann::json::exception& problem, int lines) {
    // "[json.exception.parse_error.101] parse error at line 2, column 5: syntax error while ..."
    const std::string text = problem.what();
    const std::size_t at = text.find("at line ");
    int line = 0;
    int column = 0;
    if (at == std::string::npos || std::sscanf(text.c_str() + at, "at line %d, column %d", &line, &column) != 2) {
        return {file, lines + 1, 1, "is no JSON: " + text};
    }
    return {file, lines + line, std::max(1, column), "is no JSON: " + text.substr(text.find(": ", at) + 2)};
}

nlohmann::json parse_json(const std::string& text, const std::string& file) {
    try {
        return nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception& problem) {
        throw ConfigError({json_problem(file, problem)});
    }
}

}  // namespace orrery::inline replay
