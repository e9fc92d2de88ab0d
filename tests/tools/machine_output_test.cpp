// What programs read of this program: errors and explanations as JSON, and checks without a run.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sstream>
#include <string>

using namespace orrery;
using namespace orrery::test;

namespace {

void run_fine(const std::string& arguments) {
    const Outcome outcome = orrery_command(arguments);
    INFO(outcome.text);
    REQUIRE(outcome.code == 0);
}

}  // namespace

TEST_CASE("A dry run checks a scenario, says what it takes and runs nothing") {
    const Folder folder;
    const std::string slow = ORRERY_SOURCE_DIR "/scenarios/collective/all-to-all-1024.yaml";
    Outcome outcome = orrery_command("run --dry-run " + slow);
    CHECK(outcome.code == 0);
    CHECK(outcome.text.find("is valid; a run takes about") != std::string::npos);
    CHECK(orrery_command("run --dry-run --quiet " + slow).text.empty());
    run_fine(fmt::format("run --dry-run {} --resolved {}", slow, folder.file("resolved.yaml")));
    CHECK(read(folder.file("resolved.yaml")).find("all-to-all") != std::string::npos);
    outcome = orrery_command("run --dry-run --json - " + slow);
    CHECK(outcome.code == 2);
    CHECK(outcome.text.find("--json has no effect with --dry-run") != std::string::npos);
}

TEST_CASE("Errors are printed as JSON, an object a line, where that is asked for") {
    const Folder folder;
    const std::string wrong = folder.file("wrong.yaml", "orrery: 1\nkind: colective\n");
    const Outcome outcome = orrery_command("run --output-format json " + wrong);
    CHECK(outcome.code == 2);
    std::istringstream lines(outcome.text);
    std::string line;
    REQUIRE(std::getline(lines, line));
    const auto first = nlohmann::json::parse(line);
    CHECK(first["code"] == "E207");
    CHECK(first["file"] == wrong);
    CHECK(first["line"] == 2);
    CHECK(first["suggestion"] == "collective");
    REQUIRE(std::getline(lines, line));
    CHECK(nlohmann::json::parse(line)["code"] == "E202");
    const Outcome option = orrery_command("run --output-format=json --rum x");
    CHECK(nlohmann::json::parse(option.text)["code"] == "E214");
    CHECK(orrery_command("run --output-format jsn " + wrong).text.find("did you mean 'json'") != std::string::npos);
}

TEST_CASE("An explanation as JSON has the numbers of the text") {
    const std::string scenario = ORRERY_SOURCE_DIR "/scenarios/training/gpt3-175b-1024xA100.yaml";
    const Outcome outcome = orrery_command("explain --json - " + scenario);
    REQUIRE(outcome.code == 0);
    const auto why = nlohmann::json::parse(outcome.text);
    CHECK(orrery_command("explain " + scenario).text.find(why["verdict"].get<std::string>()) != std::string::npos);
    double path = 0;
    for (const auto& row : why["critical_path"]) {
        path += row["seconds"].get<double>();
    }
    CHECK(path == doctest::Approx(why["seconds"].get<double>()).epsilon(1e-6));
    CHECK(why["metric"] == "iteration_time_s");
    CHECK(why["values"].size() > 20);
    CHECK(orrery_command("explain --json - --sensitivity " + scenario).code == 2);
}
