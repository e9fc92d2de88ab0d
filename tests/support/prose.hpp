#pragma once
// The prose of a document in Markdown.

#include <sstream>
#include <string>
#include <vector>

namespace orrery::test {

/// Paragraphs and items of lists; without code, tables, headings and pictures.
inline std::vector<std::string> prose_of(const std::string& text) {
    std::vector<std::string> out(1);
    std::istringstream stream(text);
    bool code = false;
    for (std::string line; std::getline(stream, line);) {
        const bool fence = line.rfind("```", 0) == 0;
        code = fence ? !code : code;
        if (fence || code || line.empty() || line.find_first_of("|#!") == 0) {
            out.emplace_back();
            continue;
        }
        if (line.rfind("- ", 0) == 0) {
            out.emplace_back();
        }
        out.back() += line + " ";
    }
    return out;
}

}  // namespace orrery::test
