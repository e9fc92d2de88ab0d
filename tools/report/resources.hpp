#pragma once
// Files that are part of the program: the page, its style and scripts.

#include "sim/base/namespaces.hpp"

#include <string_view>

namespace orrery::report {

[[nodiscard]] std::string_view report_page();
[[nodiscard]] std::string_view report_style();
[[nodiscard]] std::string_view report_script();
/// Chart.js as Debian packages it (MIT).
[[nodiscard]] std::string_view chart_script();

}  // namespace orrery::report
