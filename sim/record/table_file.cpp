#include "sim/record/table_file.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>

namespace orrery::record {

namespace {

constexpr const char* kMain = "main";

void check(sqlite3* database, int code) {
    if (code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE) {
        throw InternalError(fmt::format("a table cannot be made a database: {}", sqlite3_errmsg(database)));
    }
}

struct Close {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
    void operator()(unsigned char* bytes) const { sqlite3_free(bytes); }
};

}  // namespace

TableFormat table_format_of(const std::string& path) {
    std::error_code unknown;
    const std::filesystem::file_status status = std::filesystem::status(path, unknown);
    if (path == "-" || (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))) {
        return TableFormat::csv;
    }
    std::string extension = std::filesystem::path(path).extension().string();
    std::transform(extension.begin(), extension.end(), extension.begin(),
                   [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
    if (extension == ".csv") {
        return TableFormat::csv;
    }
    if (extension == ".sqlite" || extension == ".sqlite3" || extension == ".db") {
        return TableFormat::sqlite;
    }
    throw ConfigError({Diagnostic{path, 0, 0, "a table is written as .csv, or as .sqlite, .sqlite3 or .db",
                                  ErrorCode::command_line}});
}

std::string to_csv(const Table& table) {
    std::string out;
    for (const Table::Column& column : table.columns) {
        out += fmt::format("{}{}", out.empty() ? "" : ",", column.name);
    }
    out += '\n';
    std::vector<double> cells(table.columns.size());
    for (std::size_t row = 0; row < table.rows; ++row) {
        table.fill(row, cells);
        for (std::size_t i = 0; i < cells.size(); ++i) {
            if (i > 0) {
                out += ',';
            }
            if (!std::isnan(cells[i])) {
                fmt::format_to(std::back_inserter(out), "{:.{}f}", cells[i], table.columns[i].decimals);
            }
        }
        out += '\n';
    }
    return out;
}

std::string to_sqlite(const Table& table) {
    sqlite3* opened = nullptr;
    const int code = sqlite3_open(":memory:", &opened);
    const std::unique_ptr<sqlite3, Close> database(opened);
    check(opened, code);
    std::string columns;
    std::string places;
    for (const Table::Column& column : table.columns) {
        columns +=
            fmt::format("{}{} {}", columns.empty() ? "" : ", ", column.name, column.decimals == 0 ? "INTEGER" : "REAL");
        places += places.empty() ? "?" : ", ?";
    }
    const auto run = [&](const std::string& sql) {
        check(opened, sqlite3_exec(opened, sql.c_str(), nullptr, nullptr, nullptr));
    };
    run("PRAGMA application_id = 0x4F525254");
    run(fmt::format("CREATE TABLE {}({})", table.name, columns));
    run("BEGIN");
    sqlite3_stmt* prepared = nullptr;
    check(opened, sqlite3_prepare_v2(opened, fmt::format("INSERT INTO {} VALUES({})", table.name, places).c_str(), -1,
                                     &prepared, nullptr));
    {
        const std::unique_ptr<sqlite3_stmt, Close> insert(prepared);
        std::vector<double> cells(table.columns.size());
        for (std::size_t row = 0; row < table.rows; ++row) {
            table.fill(row, cells);
            for (std::size_t i = 0; i < cells.size(); ++i) {
                const int place = static_cast<int>(i) + 1;
                check(opened, std::isnan(cells[i]) ? sqlite3_bind_null(prepared, place)
                              : table.columns[i].decimals == 0
                                  ? sqlite3_bind_int64(prepared, place, std::llround(cells[i]))
                                  : sqlite3_bind_double(prepared, place, cells[i]));
            }
            check(opened, sqlite3_step(prepared));
            check(opened, sqlite3_reset(prepared));
        }
    }
    run("COMMIT");
    sqlite3_int64 size = 0;
    const std::unique_ptr<unsigned char, Close> bytes(sqlite3_serialize(opened, kMain, &size, 0));
    if (bytes == nullptr) {
        throw InfeasibleError("a table does not fit into memory as a database: write .csv", ErrorCode::out_of_memory);
    }
    ORRERY_ASSERT(size > 0);
    return {reinterpret_cast<const char*>(bytes.get()), static_cast<std::size_t>(size)};
}

std::string table_file(const std::string& path, const Table& table) {
    return table_format_of(path) == TableFormat::csv ? to_csv(table) : to_sqlite(table);
}

}  // namespace orrery::record
