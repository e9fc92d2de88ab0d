#pragma once
// orrery list papers: published systems with what is predicted for their claims, and how that is scored.

#include "sim/config/data_directory.hpp"
#include "tools/reference/papers.hpp"

#include <string>
#include <vector>

namespace orrery::program {

/// Columns of the rows.
[[nodiscard]] std::vector<std::string> paper_columns();
/// A row for each system: its headline, how many of its figures lie within their bands, its grade.
[[nodiscard]] std::vector<std::vector<std::string>> paper_rows(const DataDirectory& data);
/// How many systems have which grade, and how many figures are within their bands.
[[nodiscard]] std::string paper_totals(const std::vector<Paper>& papers);
/// Every system with all its figures, and the totals.
[[nodiscard]] std::string papers_json(const std::vector<Paper>& papers);

}  // namespace orrery::program
