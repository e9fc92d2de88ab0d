#pragma once
// Medians of prediction errors, as tables show them.

#include "validation/statistics.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

namespace orrery::validation {

/// Median size of relative errors, in per cent.
[[nodiscard]] inline double median_size(std::vector<double> relative_errors) {
    for (double& error : relative_errors) {
        error = std::abs(error);
    }
    return statistics_of(std::move(relative_errors)).median_bias;
}

/// Their median size and their median: "12.3 % (-4.5)"; "-" where there are none.
[[nodiscard]] inline std::string shown_errors(const std::vector<double>& relative_errors) {
    return relative_errors.empty() ? "-"
                                   : fmt::format("{:.1f} % ({:+.1f})", median_size(relative_errors),
                                                 statistics_of(relative_errors).median_bias);
}

}  // namespace orrery::validation
