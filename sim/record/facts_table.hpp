#pragma once
// Small tables of facts: cells under a header, comments after '#'.

#include "sim/base/namespaces.hpp"

#include <map>
#include <string>
#include <vector>

namespace orrery::record {

/// One row: cells by column, and where it stands.
struct FactsRow {
    std::map<std::string, std::string> cells;
    std::string file;
    int line = 0;

    [[nodiscard]] const std::string& text(const std::string& column) const;
    /// Throws ConfigError when the cell is missing or no number.
    [[nodiscard]] double number(const std::string& column) const;
};

/// Reads a table; the last column may hold separators. Throws ConfigError for unreadable files and rows of another length.
[[nodiscard]] std::vector<FactsRow> read_facts_table(const std::string& path, char separator = ',');

}  // namespace orrery::record
