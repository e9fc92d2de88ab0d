#include "workloads/replay/importers/json_text.hpp"

#include <algorithm>
#include <cstdio>

namespace orrery::inline replay {

Diagnostic json_problem(const std::string& file, const std::exception& problem, int lines) {
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

}  // namespace orrery::inline replay
