#pragma once
// Statistics of prediction errors.

#include "sim/base/namespaces.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace orrery::validation {

inline constexpr double kMillisecond = 1e-3;  ///< s

/// Mean absolute, median signed and largest absolute relative error of predictions, in per cent.
struct ErrorStatistics {
    std::size_t count = 0;
    double mape = 0;
    double median_bias = 0;
    double worst = 0;
};

[[nodiscard]] inline ErrorStatistics statistics_of(std::vector<double> relative_errors) {
    ErrorStatistics out;
    out.count = relative_errors.size();
    if (relative_errors.empty()) {
        return out;
    }
    for (const double error : relative_errors) {
        out.mape += 100 * std::abs(error) / static_cast<double>(out.count);
        out.worst = std::max(out.worst, 100 * std::abs(error));
    }
    std::sort(relative_errors.begin(), relative_errors.end());
    const std::size_t middle = out.count / 2;
    out.median_bias = 100 * (out.count % 2 == 1 ? relative_errors[middle]
                                                : (relative_errors[middle - 1] + relative_errors[middle]) / 2);
    return out;
}

/// Kendall's tau-b without ties: (concordant - discordant) / pairs.
[[nodiscard]] inline double kendall_tau(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    double pairs = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = i + 1; j < a.size(); ++j) {
            const double product = (a[i] - a[j]) * (b[i] - b[j]);
            sum += product > 0 ? 1 : product < 0 ? -1 : 0;
            pairs += 1;
        }
    }
    return pairs > 0 ? sum / pairs : 0;
}

}  // namespace orrery::validation
