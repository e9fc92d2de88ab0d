// Tables as CSV and as databases.

#include "sim/record/table_file.hpp"
#include "sim/base/error.hpp"
#include "sim/record/summary.hpp"
#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <cmath>

using namespace orrery;
using namespace orrery::test;

namespace {

Table squares() {
    Table out;
    out.name = "squares";
    out.columns = {{"number"}, {"square", 3}};
    out.rows = 3;
    out.fill = [](std::size_t row, std::span<double> cells) {
        cells[0] = static_cast<double>(row);
        cells[1] = row == 1 ? std::nan("") : 1.5 * static_cast<double>(row * row);
    };
    return out;
}

}  // namespace

TEST_CASE("a table is CSV or a database, by its name, and what is not known is empty") {
    CHECK(to_csv(squares()) == "number,square\n0,0.000\n1,\n2,6.000\n");
    const Folder folder;
    const std::string file = folder.file("t.DB");
    write_file(file, table_file(file, squares()));
    sqlite3* database = nullptr;
    REQUIRE(sqlite3_open_v2(file.c_str(), &database, SQLITE_OPEN_READONLY, nullptr) == SQLITE_OK);
    sqlite3_stmt* rows = nullptr;
    REQUIRE(sqlite3_prepare_v2(database,
                               "SELECT group_concat(number || ':' || ifnull(square, typeof(square)) || typeof(number)) "
                               "FROM squares",
                               -1, &rows, nullptr) == SQLITE_OK);
    REQUIRE(sqlite3_step(rows) == SQLITE_ROW);
    CHECK(std::string(reinterpret_cast<const char*>(sqlite3_column_text(rows, 0))) ==
          "0:0.0integer,1:nullinteger,2:6.0integer");
    sqlite3_finalize(rows);
    sqlite3_close(database);
    CHECK(to_sqlite(squares()) == to_sqlite(squares()));
    CHECK(table_format_of("-") == TableFormat::csv);
    CHECK(table_format_of("a.sqlite3") == TableFormat::sqlite);
    CHECK(table_format_of("/dev/null") == TableFormat::csv);
    CHECK_THROWS_WITH_AS((void)table_file(folder.file("t.txt"), squares()),
                         doctest::Contains("a table is written as .csv, or as .sqlite"), ConfigError);
}
