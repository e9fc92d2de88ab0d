#pragma once
// Lists of names in one text of a plan.

#include "sim/base/text.hpp"

#include <string>
#include <vector>

namespace orrery::training {

/// Names that commas divide, without the blanks around them.
[[nodiscard]] inline std::vector<std::string> names_in(const std::string& text) {
    std::vector<std::string> out;
    for (const std::string_view part : split(text, ',')) {
        const std::size_t first = part.find_first_not_of(' ');
        if (first != std::string_view::npos) {
            out.emplace_back(part.substr(first, part.find_last_not_of(' ') - first + 1));
        }
    }
    return out;
}

}  // namespace orrery::training
