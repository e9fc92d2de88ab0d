// The Python package that the build made.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>

using namespace orrery;
using namespace orrery::test;

namespace {

std::filesystem::path build_folder() {
    return std::filesystem::absolute(orrery_program()).parent_path();
}

// Whether there is a module to test; says why not.
bool has_module() {
    if (shell_command("python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'").code != 0) {
        MESSAGE("skipped: no python3 here");
        return false;
    }
    if (shell_command(fmt::format("PYTHONPATH={}/python python3 -c 'import orrery'", build_folder().string())).code !=
        0) {
        MESSAGE("skipped: the Python module was not built (python3-dev, pybind11-dev), or not for this python3");
        return false;
    }
    return true;
}

void run_python_test(const char* name) {
    if (!has_module()) {
        return;
    }
    const Outcome outcome =
        shell_command(fmt::format("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={}/python ORRERY_PROGRAM={} "
                                  "python3 {}/tests/tools/python_test.py {}",
                                  build_folder().string(), orrery_program(), ORRERY_SOURCE_DIR, name));
    INFO(outcome.text);
    CHECK(outcome.code == 0);
}

}  // namespace

TEST_CASE("Python runs scenarios given as a dict, a text or a path") {
    run_python_test("scenario_forms");
}
TEST_CASE("Errors are exceptions in Python, with codes and places") {
    run_python_test("errors");
}
TEST_CASE("Python explains, plans, prices, sweeps and searches capacities") {
    run_python_test("other_commands");
}
TEST_CASE("Python runs many scenarios beside each other") {
    run_python_test("many_runs");
}
TEST_CASE("Ctrl-C ends a run in Python within 100 ms") {
    run_python_test("interrupts");
}
TEST_CASE("A run in Python lets other threads go on") {
    run_python_test("other_threads");
}
TEST_CASE("A run in Python keeps to its memory limit and leaves nothing open") {
    run_python_test("memory");
}
TEST_CASE("The types of the Python package are complete") {
    run_python_test("typed");
}
TEST_CASE("Results in Python are shown as HTML and become data frames") {
    run_python_test("frames");
}
TEST_CASE("The Python package is imported within 50 ms") {
    run_python_test("import_time");
}
