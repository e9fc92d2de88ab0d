// Expectations in scenarios: bounds of metrics, from reading to exit code.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace orrery;
using namespace orrery::test;

namespace {

const char* const kRing =
    "orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-h100}\ncollective: {size: 1 MiB}\n";

std::string errors_of(const std::string& text) {
    try {
        (void)run_scenario(scenario(text), model_cache(), {});
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("expect: each bound is held against its metric, and shares and times have their units") {
    const Summary out =
        run_scenario(scenario(std::string(kRing) + "expect: {collective_time_s: \"< 1 s\", algbw_gbps: \"> 1e9\", "
                                                   "max_link_utilisation: \"<= 100 %\", events: \">= 1\"}\n"),
                     model_cache(), {})
            .summary;
    REQUIRE(out.expectations.size() == 4);
    CHECK(out.expectations[0].met);
    CHECK(!out.expectations[1].met);
    CHECK(out.expectations[2].met);
    CHECK(out.expectations[3].met);
    CHECK(out.failed() == 1);
    const auto json = nlohmann::json::parse(to_json(out, false));
    CHECK(json["expectations"][1]["met"] == false);
    CHECK(json["expectations"][0]["expected"] == "< 1 s");
    // They are no part of what the run depends on, and a resolved scenario keeps them.
    const Summary bare = run_scenario(scenario(kRing), model_cache(), {}).summary;
    CHECK(bare.hash == out.hash);
    CHECK(!nlohmann::json::parse(to_json(bare, false)).contains("expectations"));
    const Scenario again =
        scenario(resolved_json(scenario(std::string(kRing) + "expect: {collective_time_s: \"< 1 s\"}\n")));
    REQUIRE(again.expect.size() == 1);
    CHECK(again.expect[0].bound == 1);
}

TEST_CASE("expect: what is no metric or no bound says where and what is nearest") {
    CHECK(errors_of(std::string(kRing) + "expect: {colective_time_s: \"< 1 s\"}\n").find(":5:") != std::string::npos);
    CHECK(errors_of(std::string(kRing) + "expect: {colective_time_s: \"< 1 s\"}\n")
              .find("did you mean 'collective_time_s'") != std::string::npos);
    CHECK(errors_of(std::string(kRing) + "expect: {collective_time_s: 1 s}\n").find("write a bound") !=
          std::string::npos);
    CHECK(errors_of(std::string(kRing) + "expect: {collective_time_s: \"< 1\"}\n").find("has no unit") !=
          std::string::npos);
    CHECK(errors_of(std::string(kRing) + "expect: {algbw_gbps: \"> 40 %\"}\n").find("no share") != std::string::npos);
    CHECK(errors_of(std::string(kRing) + "expect: {mfu: \"> 0.4\"}\n").find("this run has none of that name") !=
          std::string::npos);
    CHECK(errors_of(std::string(kRing) + "expect: 5\n").find("map of metrics") != std::string::npos);
    const std::string serving =
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\nrequests: {count: 5}\n";
    CHECK(errors_of(serving + "expect: {ttft_s: \"< 2 s\"}\n").find("did you mean 'ttft_s.mean'") != std::string::npos);
    CHECK(errors_of(serving + "expect: {ttft_s: {p99: \"< 2 s\"}}\n").empty());
}

TEST_CASE("expect: the program shows ticks and crosses first and ends with exit code 1") {
    const Folder folder;
    const std::string good = folder.file("good.yaml", std::string(kRing) + "expect: {collective_time_s: \"< 1 s\"}\n");
    const Outcome fine = orrery_command("run " + good);
    CHECK(fine.code == 0);
    CHECK_MESSAGE(fine.text.rfind("\u2713 collective_time_s < 1 s", 0) == 0, fine.text);
    const std::string bad = folder.file("bad.yaml", std::string(kRing) + "expect: {collective_time_s: \"< 1 us\"}\n");
    const Outcome failed = orrery_command("run " + bad);
    CHECK(failed.code == 1);
    CHECK_MESSAGE(failed.text.rfind("\u2717 collective_time_s < 1 us", 0) == 0, failed.text);
    CHECK(orrery_command("run " + bad + " --quiet").code == 1);
    const Outcome noted = orrery_command("run " + bad + " --quiet --output-format github");
    CHECK_MESSAGE(noted.text.rfind("::error file=" + bad + ",line=5,col=", 0) == 0, noted.text);
    const std::string unknown = folder.file("unknown.yaml", std::string(kRing) + "expect: {time: \"< 1 s\"}\n");
    CHECK(orrery_command("run " + unknown).text.find("[E208]") != std::string::npos);
    const std::string boundless = folder.file("boundless.yaml", std::string(kRing) + "expect: {events: many}\n");
    CHECK(orrery_command("run " + boundless).text.find("[E209]") != std::string::npos);
    // The unit of the metric may be written, and no other.
    const auto bound = [&](const std::string& text) {
        return orrery_command("run --quiet " +
                              folder.file("bound.yaml", std::string(kRing) + "expect: {" + text + "}\n"));
    };
    CHECK(bound("busbw_gbps: \"> 0.001 Gb/s\"").code == 0);
    CHECK(bound("busbw_gbps: \"> 1e9 Gb/s\"").code == 1);
    const Outcome other = bound("busbw_gbps: \"> 1 GiB\"");
    CHECK(other.code == 2);
    CHECK_MESSAGE(other.text.find("its bound is a number, in ") != std::string::npos, other.text);
    // In a check it fails the baseline.
    const std::string baseline = folder.file("baseline.yaml");
    CHECK(orrery_command("check " + baseline + " --update --scenario " + bad + " --reason first").code == 0);
    const Outcome checked = orrery_command("check " + baseline + " --output-format github");
    CHECK(checked.code == 1);
    CHECK_MESSAGE(checked.text.find("expected < 1 us") != std::string::npos, checked.text);
    CHECK_MESSAGE(checked.text.find("::error file=") != std::string::npos, checked.text);
    // In a sweep it is a column.
    const std::string sweep =
        folder.file("sweep.yaml", "orrery: 1\nkind: sweep\nbase: bad.yaml\naxes: {collective.size: [1 KiB, 1 GiB]}\n");
    const std::string database = folder.file("r.sqlite");
    CHECK(orrery_command("sweep " + sweep + " -j 1 --db " + database + " --quiet").code == 0);
    const Outcome table =
        orrery_command("table " + database + " --columns collective.size,expectations_failed --format csv");
    CHECK_MESSAGE(table.text.find("expectations_failed") != std::string::npos, table.text);
    CHECK_MESSAGE(table.text.find(",1") != std::string::npos, table.text);
}

TEST_CASE("expect: with --quiet and beside JSON a failed expectation is an error at its line") {
    const Folder folder;
    const std::string bad =
        folder.file("bad.yaml", std::string(kRing) + "expect:\n  collective_time_s: \"< 1 us\"\n  events: \">= 1\"\n");
    const Outcome quiet = orrery_command("run " + bad + " --quiet");
    CHECK(quiet.code == 1);
    CHECK_MESSAGE(quiet.text.rfind(bad + ":6:22: error: collective_time_s is ", 0) == 0, quiet.text);
    CHECK_MESSAGE(quiet.text.find("expected < 1 us") != std::string::npos, quiet.text);
    CHECK(quiet.text.find("events") == std::string::npos);
    const Outcome json = shell_command("( " + orrery_program() + " run " + bad + " --json - 2>&1 >/dev/null )");
    CHECK_MESSAGE(json.text.find("expected < 1 us") != std::string::npos, json.text);
}

TEST_CASE("expect: a check tells an expectation of the scenario from a prediction that changed") {
    const Folder folder;
    const std::string bad = folder.file("bad.yaml", std::string(kRing) + "expect: {collective_time_s: \"< 1 us\"}\n");
    const std::string baseline = folder.file("baseline.yaml");
    REQUIRE(orrery_command("check " + baseline + " --update --scenario " + bad + " --reason first").code == 0);
    const std::string junit = folder.file("j.xml");
    const std::string summary = folder.file("s.md");
    const std::string report = folder.file("r.html");
    const Outcome out =
        orrery_command(fmt::format("check {} --junit {} --summary {} --report {}", baseline, junit, summary, report));
    CHECK(out.code == 1);
    CHECK_MESSAGE(out.text.find("NOT AS EXPECTED") != std::string::npos, out.text);
    CHECK_MESSAGE(out.text.find("the program itself computes something else") == std::string::npos, out.text);
    CHECK_MESSAGE(out.text.find("gives what the baseline pins") != std::string::npos, out.text);
    CHECK(read(junit).find("errors=\"0\"") != std::string::npos);
    CHECK(read(junit).find("name=\"expect collective_time_s\"><failure message=") != std::string::npos);
    CHECK(read(summary).find("not as expected") != std::string::npos);
    CHECK(read(report).find("the program itself computes something else") == std::string::npos);
    // A pinned value that is another: the program, or who edited the baseline.
    std::string text = read(baseline);
    const std::size_t at = text.find("collective_time_s: {value: ") + 27;
    (void)folder.file("baseline.yaml", text.replace(at, text.find(',', at) - at, "1"));
    const Outcome moved = orrery_command("check " + baseline);
    CHECK_MESSAGE(moved.code == 1, moved.text);
}

TEST_CASE("expect: a run writes its expectations as JUnit, and why there was no run") {
    const Folder folder;
    const std::string junit = folder.file("j.xml");
    const std::string bad =
        folder.file("bad.yaml", std::string(kRing) + "expect: {collective_time_s: \"< 1 us\", events: \">= 1\"}\n");
    CHECK(orrery_command(fmt::format("run {} --quiet --junit {}", bad, junit)).code == 1);
    const std::string text = read(junit);
    CHECK_MESSAGE(text.find("<testsuites name=\"orrery run\">") != std::string::npos, text);
    CHECK_MESSAGE(text.find("tests=\"2\" failures=\"1\" errors=\"0\"") != std::string::npos, text);
    CHECK_MESSAGE(text.find("name=\"expect events\"/>") != std::string::npos, text);
    CHECK_MESSAGE(text.find("<failure message=\"collective_time_s: ") != std::string::npos, text);
    const std::string bare = folder.file("bare.yaml", kRing);
    const Outcome none = orrery_command(fmt::format("run {} --junit {}", bare, junit));
    CHECK(none.code == 2);
    CHECK_MESSAGE(none.text.find("--junit writes what became of 'expect'") != std::string::npos, none.text);
    const std::string large = folder.file("large.yaml", std::string(kSmallTraining) + "expect: {mfu: \"> 1 %\"}\n");
    CHECK(orrery_command(fmt::format("run {} --set plan.tensor=4 --quiet --junit {}", large, junit)).code == 3);
    CHECK_MESSAGE(read(junit).find("errors=\"1\"") != std::string::npos, read(junit));
}
