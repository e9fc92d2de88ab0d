#pragma once
// Errors of a group of rows of memory, and whether what was to start or fit did.

#include "validation/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace orrery::validation {

struct MemoryGroup {
    std::vector<double> errors;  ///< signed
    std::size_t right = 0;       ///< rows that start or fit as they did, or do not
    std::size_t rows = 0;

    [[nodiscard]] double median() const {
        std::vector<double> sizes;
        for (const double error : errors) {
            sizes.push_back(std::abs(error));
        }
        return statistics_of(std::move(sizes)).median_bias;
    }
    /// Per cent of the errors that are at most `band`.
    [[nodiscard]] double within(double band) const {
        const auto inside =
            std::count_if(errors.begin(), errors.end(), [&](double error) { return std::abs(error) <= band; });
        return errors.empty() ? 100 : 100.0 * static_cast<double>(inside) / static_cast<double>(errors.size());
    }
    [[nodiscard]] double answered() const { return 100.0 * static_cast<double>(right) / static_cast<double>(rows); }
    /// A row of a table: name, rows, median error, bias, share within the band, right.
    [[nodiscard]] std::vector<std::string> cells(const std::string& name, double band) const {
        const bool none = errors.empty();
        return {name,
                std::to_string(rows),
                none ? "" : fmt::format("{:.1f} %", median()),
                none ? "" : fmt::format("{:+.1f} %", statistics_of(errors).median_bias),
                none ? "" : fmt::format("{:.0f} %", within(band)),
                fmt::format("{:.0f} %", answered())};
    }
};

}  // namespace orrery::validation
