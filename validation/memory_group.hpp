#pragma once
// Errors of a group of rows of memory, and whether what was to start or fit did.

#include "tools/terminal/terminal.hpp"
#include "validation/scatter.hpp"
#include "validation/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
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

/// How a suite of memory names its tables and scores.
struct MemoryNames {
    const char* title;        ///< of the table of groups
    const char* group;        ///< first column
    const char* right;        ///< column of rows that start or fit as they did
    const char* right_score;  ///< the same, as a score
};

/// Prints the groups (one of them "all", one "held back") and the reasons of rows left out, and adds tables and scores to `out`.
/// `band`: share of an error that is still good.
inline void report_groups(Comparison& out, const Terminal& terminal, const MemoryNames& names,
                          const std::map<std::string, MemoryGroup>& groups, double band,
                          const std::map<std::string, int>& left_out) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, group] : groups) {
        rows.push_back(group.cells(name, band));
    }
    const std::vector<std::string> columns = {
        names.group, "rows", "median error", "bias", fmt::format("within {:.0f} %", 100 * band), names.right};
    terminal.heading(names.title);
    terminal.table(columns, rows);
    out.tables.push_back({names.title, columns, rows});
    std::vector<std::vector<std::string>> excluded;
    for (const auto& [why, count] : left_out) {
        excluded.push_back({std::to_string(count), why});
    }
    terminal.heading("rows left out");
    terminal.table({"rows", "reason"}, excluded);
    const MemoryGroup& all = groups.at("all");
    const auto held_back = groups.find("held back");
    out.scores = {{"rows", static_cast<double>(all.rows), ""},
                  {"error_median", all.median(), "%"},
                  {"error_held_back", held_back == groups.end() ? 0 : held_back->second.median(), "%"},
                  {fmt::format("within_{:.0f}", 100 * band), all.within(band), "%"},
                  {names.right_score, all.answered(), "%"}};
}

}  // namespace orrery::validation
