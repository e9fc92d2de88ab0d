// orrery compare: runs and summaries side by side.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace orrery;
using namespace orrery::test;

namespace {

const char* const kRing =
    "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-h100}\ncollective: {size: 1 MiB}\n";

}  // namespace

TEST_CASE("compare: scenarios and summaries side by side, with what is relative to the first") {
    const Folder folder;
    const std::string one = folder.file("one.yaml", kRing);
    std::string larger = kRing;
    larger.replace(larger.find("1 MiB"), 5, "4 MiB");
    const std::string two = folder.file("two.yaml", larger);
    const std::string summary = folder.file("one.json");
    CHECK(orrery_command("run " + one + " --quiet --json " + summary).code == 0);
    const Outcome shown = orrery_command("compare " + summary + " " + two + " " + one);
    CHECK_MESSAGE(shown.code == 0, shown.text);
    CHECK_MESSAGE(shown.text.find("relative") != std::string::npos, shown.text);
    const Outcome json = orrery_command("compare " + summary + " " + two + " " + one + " --export json -");
    const auto parsed = nlohmann::json::parse(json.text);
    const auto& times = parsed["metrics"]["collective_time_s"];
    const double ratio = times[1]["value"].get<double>() / times[0]["value"].get<double>() - 1;
    CHECK(times[1]["relative"].get<double>() == doctest::Approx(ratio).epsilon(1e-9));
    CHECK(ratio > 0.5);
    CHECK(times[2]["relative"] == 0);
    const std::string table = folder.file("t.md");
    CHECK(orrery_command("compare " + one + " " + two + " --export markdown " + table + " --metrics algbw_gbps").code ==
          0);
    CHECK(read(table).rfind("| metric | one | two | relative |\n|---|---:|---:|---:|\n| algbw_gbps", 0) == 0);
    CHECK(orrery_command("compare " + one + " " + two + " --export csv -").text.rfind("metric,unit,", 0) == 0);
    CHECK(
        orrery_command("compare " + one + " " + two + " --metrics algbw_gbp").text.find("did you mean 'algbw_gbps'") !=
        std::string::npos);
    // As a picture: 4 MiB take less than four times as long, and the first one is 1.
    const std::string chart = folder.file("t.svg");
    CHECK(orrery_command("compare " + one + " " + two + " --quiet --export svg " + chart).code == 0);
    CHECK(read(chart).find(">times those of one</text>") != std::string::npos);
    CHECK(read(chart).find(">1</text>") != std::string::npos);
    CHECK(read(chart).find(fmt::format(">{:.4g}</text>", 1 + ratio)) != std::string::npos);
    CHECK(orrery_command("compare " + one + " " + two + " --export xml t").text.find("markdown, csv, json, svg") !=
          std::string::npos);
    CHECK(orrery_command("compare " + one + " " + folder.file("none.json")).code == 2);
    CHECK(orrery_command("compare " + one + " " + folder.file("odd.json", "{}")).code == 2);
    CHECK(orrery_command("compare " + one + " " + two + " --export csv " + one).code == 2);  // an input
}

TEST_CASE("compare shows the 90 % intervals of metrics that have one, and says what they mean") {
    const Folder folder;
    const std::string one = folder.file("one.yaml", kSmallTraining);
    const std::string two = folder.file("two.yaml", std::string(kSmallTraining) + "seed: 2\n");
    const std::string text = orrery_command("compare " + one + " " + two + " --all").text;
    const std::size_t line = text.find("iteration_time_s");
    REQUIRE(line != std::string::npos);
    CHECK_MESSAGE(text.substr(line, text.find('\n', line) - line).find(" to ") != std::string::npos, text);
    CHECK(text.find("In brackets: 90 % intervals.") != std::string::npos);
}

TEST_CASE("compare: values of a wrong type in a summary are refused with their line") {
    const Folder folder;
    const std::string summary = folder.file("one.json");
    REQUIRE(orrery_command("run " + folder.file("one.yaml", kRing) + " --quiet --json " + summary).code == 0);
    const std::string good = read(summary);
    const auto with = [&](const std::string& what, const std::string& other) {
        std::string text = good;
        text.replace(text.find(what, text.find("collective_time_s")), what.size(), other);
        return orrery_command("compare " + summary + " " + folder.file("odd.json", text));
    };
    for (const char* unit : {"5", "null", "[\"s\"]"}) {
        const Outcome out = with("\"unit\": \"s\"", fmt::format("\"unit\": {}", unit));
        CHECK_MESSAGE(out.code == 2, out.text);
        CHECK_MESSAGE(out.text.find("odd.json:") != std::string::npos, out.text);
        CHECK_MESSAGE(out.text.find(": error: 'metrics.collective_time_s.unit' must be a text") != std::string::npos,
                      out.text);
    }
    CHECK(with("\"low\": null", "\"low\": \"1\"").text.find("low' must be a number or null") != std::string::npos);
    CHECK(with("\"value\": ", "\"value\": {}, \"was\": ").text.find("value' must be a number or null") !=
          std::string::npos);
    const Outcome cut =
        orrery_command("compare " + summary + " " + folder.file("cut.json", good.substr(0, good.size() / 2)));
    CHECK_MESSAGE((cut.code == 2 && cut.text.find("is no JSON") != std::string::npos), cut.text);
    CHECK(orrery_command("compare " + summary + " " + folder.file("deep.json", std::string(1000000, '['))).code == 2);
}
