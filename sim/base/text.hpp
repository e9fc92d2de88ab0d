#pragma once
// Small pieces of text handling that readers of line formats share.

#include <algorithm>
#include <string_view>
#include <vector>

namespace orrery {

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

}  // namespace orrery
