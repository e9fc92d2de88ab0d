#pragma once
// Small pieces of text handling that readers of line formats share.

#include "sim/base/namespaces.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::base {

/// The parts of `text` between separators; one more than there are separators. The views live as long as the text.
[[nodiscard]] inline std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t start = 0;;) {
        const std::size_t end = std::min(text.find(separator, start), text.size());
        parts.push_back(text.substr(start, end - start));
        if (end == text.size()) {
            return parts;
        }
        start = end + 1;
    }
}

std::vector<std::string_view> split(std::string&& text, char separator) = delete;  // which would not outlive its parts

/// Text of a file as it may reach a terminal: escape sequences, newlines, marks that turn the direction of writing and bytes
/// that are no UTF-8 are spelt out ("\x1b"), and of more than `most` bytes the middle is left out, with how many there are.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most = 4000);

}  // namespace orrery::base
