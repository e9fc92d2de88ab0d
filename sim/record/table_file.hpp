#pragma once
// Tables of numbers as files: CSV, or a database of SQLite with one table.
//
// A number that is not known (NaN) is an empty field of CSV and NULL in SQLite. Where SQLite stores a column of whole numbers it stores
// integers. Validated by tests/sim/record/table_file_test.cpp.

#include "sim/base/namespaces.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace orrery::record {

/// Rows are made as they are written: there may be millions.
struct Table {
    struct Column {
        const char* name;
        int decimals = 0;  ///< 0: whole numbers
    };
    std::string name;  ///< of the table in a database; letters and underscores
    std::vector<Column> columns;
    std::size_t rows = 0;
    std::function<void(std::size_t row, std::span<double> cells)> fill;
};

enum class TableFormat { csv, sqlite };
/// By the name's extension: .csv; .sqlite, .sqlite3 or .db. CSV for "-" and for what is no regular file. Throws ConfigError for others.
[[nodiscard]] TableFormat table_format_of(const std::string& path);

[[nodiscard]] std::string to_csv(const Table& table);
/// The bytes of a database; its PRAGMA application_id is 0x4F525254, "ORRT".
[[nodiscard]] std::string to_sqlite(const Table& table);
/// The text or bytes of a table as a file of this name holds them. Throws ConfigError as table_format_of does.
[[nodiscard]] std::string table_file(const std::string& path, const Table& table);

}  // namespace orrery::record
