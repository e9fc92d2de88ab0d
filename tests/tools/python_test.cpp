// The Python package that the build made, and the wheel that it becomes.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
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
TEST_CASE("An autoscaler and an admission written in Python decide in the caller's process") {
    run_python_test("own_service_policies");
}
TEST_CASE("The notebooks run, and print what they say") {
    if (!has_module()) {
        return;
    }
    const char* update = std::getenv("ORRERY_UPDATE_EXPECTED");
    for (const char* name : {"1-serve-a-model", "2-plan-training"}) {
        const Outcome outcome = shell_command(
            fmt::format("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={0}/python python3 {1}/tests/tools/run_notebook.py {2} "
                        "{1}/docs/notebooks/{3}.ipynb",
                        build_folder().string(), ORRERY_SOURCE_DIR, update != nullptr ? "--update" : "", name));
        CHECK_MESSAGE(outcome.code == 0, outcome.text);
    }
}
TEST_CASE("A sweep goes over the workers of Dask") {
    if (!has_module()) {
        return;
    }
    if (shell_command("python3 -c 'import dask'").code != 0) {
        MESSAGE("skipped: no dask here (python3-dask)");
        return;
    }
    const Outcome outcome = shell_command(
        fmt::format("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={}/python python3 {}/docs/notebooks/dask_sweep.py",
                    build_folder().string(), ORRERY_SOURCE_DIR));
    CHECK_MESSAGE(outcome.code == 0, outcome.text);
    CHECK(std::count(outcome.text.begin(), outcome.text.end(), '\n') == 4);
}
TEST_CASE("A scheduler and a router written in Python decide in the caller's process") {
    run_python_test("own_policies");
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

TEST_CASE("A wheel is installed without a compiler or a network, and three lines give a result") {
    if (!has_module()) {
        return;
    }
    if (shell_command("command -v patchelf && python3 -c 'import venv, ensurepip'").code != 0) {
        MESSAGE("skipped: a wheel needs patchelf and python3-venv");
        return;
    }
    const Folder folder;
    const std::string where = folder.file("wheel");
    const Outcome built =
        shell_command(fmt::format("{}/tools/wheel {} {}", ORRERY_SOURCE_DIR, build_folder().string(), where));
    INFO(built.text);
    REQUIRE(built.code == 0);
    // Of the environment only what a shell has: no library path of the build, and a folder that holds no package.
    const std::string bare = fmt::format("cd {} && env -i PATH=$PATH HOME={} ", where, where);
    const Outcome installed = shell_command(bare + "python3 -m venv v && v/bin/pip install --no-index *.whl");
    INFO(installed.text);
    REQUIRE(installed.code == 0);
    const std::string lines = fmt::format(
        "import orrery\nsummary = orrery.run('{}/v/lib/python3.'+str(__import__('sys').version_info[1])+"
        "'/site-packages/orrery/share/orrery/scenarios/training/gpt3-175b-1024xA100.yaml')\n"
        "print(summary.value('iteration_time_s'))\n",
        where);
    const Outcome ran = shell_command(bare + "v/bin/python " + folder.file("three.py", lines));
    INFO(ran.text);
    CHECK(ran.code == 0);
    CHECK(std::stod(ran.text) == doctest::Approx(29.8).epsilon(0.2));
    // Every library that is no part of the system comes from the wheel, and the data too.
    const Outcome needed = shell_command(fmt::format("ldd {}/v/lib/python3.*/site-packages/orrery/_orrery*.so", where));
    for (const char* library : {"boost_program_options", "yaml-cpp", "fmt", "CbcSolver", "protobuf"}) {
        const auto at = needed.text.find(fmt::format("=> {}/v/lib", where), needed.text.find(library));
        CHECK_MESSAGE(at != std::string::npos, library);
    }
    CHECK(needed.text.find("not found") == std::string::npos);
    CHECK(shell_command(bare + "v/bin/orrery version").text.find("site-packages/orrery/share/orrery") !=
          std::string::npos);
}
