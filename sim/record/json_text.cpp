#include "sim/record/json_text.hpp"

#include <algorithm>
#include <cstdio>

namespace orrery::record {

Diagnostic diagnostic_at(const std::string& file, std::string_view text, std::size_t offset,
                         const std::string& problem) {
    const std::string_view before = text.substr(0, offset);
    const std::size_t line_start = before.rfind('\n') + 1;  // 0 where there is none
    return {file, 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
            1 + static_cast<int>(before.size() - line_start), problem, ErrorCode::malformed_trace};
}

Diagnostic json_problem(const std::string& file, const std::exception& problem, int lines) {
    // "[json.exception.parse_error.101] parse error at line 2, column 5: syntax error while ..."
    const std::string text = problem.what();
    const std::size_t at = text.find("at line ");
    int line = 0;
    int column = 0;
    if (at == std::string::npos || std::sscanf(text.c_str() + at, "at line %d, column %d", &line, &column) != 2) {
        return {file, lines + 1, 1, "is no JSON: " + text, ErrorCode::malformed_trace};
    }
    return {file, lines + line, std::max(1, column), "is no JSON: " + text.substr(text.find(": ", at) + 2),
            ErrorCode::malformed_trace};
}

static constexpr std::size_t kDeepest = 64;

// The place of the first bracket that goes deeper than JSON may; the end of the text where none does.
static std::size_t too_deep(std::string_view text) {
    std::size_t depth = 0;
    bool in_text = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_text) {
            i += c == '\\' ? 1 : 0;
            in_text = c != '"';
        } else if (c == '"') {
            in_text = true;
        } else if (c == '[' || c == '{') {
            if (++depth > kDeepest) {
                return i;
            }
        } else if (c == ']' || c == '}') {
            depth -= depth > 0 ? 1 : 0;
        }
    }
    return text.size();
}

std::string json_depth_problem(std::string_view text) {
    return too_deep(text) < text.size() ? "is nested deeper than " + std::to_string(kDeepest) + " levels" : "";
}

void require_shallow_json(std::string_view text, const std::string& file) {
    if (const std::string problem = json_depth_problem(text); !problem.empty()) {
        throw ConfigError({diagnostic_at(file, text, too_deep(text), problem)});
    }
}

}  // namespace orrery::record
