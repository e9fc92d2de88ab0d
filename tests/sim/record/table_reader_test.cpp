// Lines of a text with what is wrong with them, and rows by the names of their columns.

#include "sim/record/table_reader.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

using namespace orrery;

TEST_CASE("lines of a text come without their ends, and the last one without an end counts too") {
    TextLines lines("one\r\n\ntwo", "a file");
    std::vector<std::string> seen;
    for (std::string_view line; lines.next_line(line);) {
        seen.emplace_back(line);
    }
    CHECK(seen == std::vector<std::string>{"one", "", "two"});
    CHECK(lines.line() == 3);
    lines.finish();
}

TEST_CASE("a reader of lines stops after a hundred problems and reports each at its line") {
    std::string text;
    for (int i = 0; i < 150; ++i) {
        text += "x\n";
    }
    TextLines lines(text, "a file");
    for (std::string_view line; lines.next_line(line);) {
        lines.fail("is wrong");
    }
    CHECK(lines.line() == 100);
    lines.fail_at(1, "is left out");
    REQUIRE(lines.problems() == 100);
    try {
        lines.finish();
        FAIL("throws what is wrong");
    } catch (const ConfigError& error) {
        CHECK(error.diagnostics()[1].to_string() == "a file:2:1: error: is wrong");
    }
}

TEST_CASE("a table of facts passes over comments and reports numbers below the least at their line") {
    TableReader table("# of what\na;b;rest\n# more\n1;-2;x;y\n\n", "a file", {';', true});
    REQUIRE(table.next());
    CHECK(table.number("a") == 1);
    CHECK(table.good());
    CHECK(table.text("rest") == "x;y");
    CHECK(table.number("b") == 0);
    CHECK_FALSE(table.good());
    CHECK_FALSE(table.next());
    try {
        table.finish();
        FAIL("throws what is wrong");
    } catch (const ConfigError& error) {
        CHECK(error.diagnostics().front().line == 4);
    }
}
