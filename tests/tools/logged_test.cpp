// `orrery validate serving --log`: predicted against logged latencies.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <sstream>
#include <string>
#include <vector>

using namespace orrery::test;

namespace {

constexpr const char* kScenario =
    "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\nrequests: {trace: trace.csv}\n";

std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> out;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) {
        out.push_back(cell);
    }
    return out;
}

}  // namespace

TEST_CASE("a log that took a quarter longer than predicted shows an error of -20 % at every quantile and request") {
    const Folder folder;
    const std::string scenario = folder.file("s.yaml", kScenario);
    std::string trace = "arrival_s,prompt,output\n";
    for (int i = 0; i < 40; ++i) {
        trace += fmt::format("{},{},{}\n", 0.05 * i, 100 + 37 * (i % 7), 20 + i % 5);
    }
    (void)folder.file("trace.csv", trace);
    const std::string table = folder.file("requests.csv");
    const Outcome run = orrery_command("run " + scenario + " --requests " + table);
    REQUIRE_MESSAGE(run.code == 0, run.text);
    // request,arrival_s,ending,prompt,output,ttft_s,tpot_s,e2e_s,retries
    std::istringstream predicted(read(table));
    std::string line;
    std::getline(predicted, line);
    std::string logged = "arrival_s,prompt,output,ttft_s,e2e_s\n";
    for (int i = 0; i < 40; ++i) {
        std::getline(predicted, line);
        const auto cells = cells_of(line);
        logged += fmt::format("{},{},{},{:.9f},{:.9f}\n", 0.05 * i, cells[3], 20 + i % 5, 1.25 * std::stod(cells[5]),
                              1.25 * std::stod(cells[7]));
    }
    (void)folder.file("trace.csv", logged);
    const std::string report = folder.file("report.html");
    const Outcome out = orrery_command("validate serving --log " + scenario + " --report " + report);
    REQUIRE_MESSAGE(out.code == 0, out.text);
    std::size_t errors = 0;
    for (std::size_t at = out.text.find("-20.0 %"); at != std::string::npos; at = out.text.find("-20.0 %", at + 1)) {
        ++errors;
    }
    CHECK_MESSAGE(errors == 3 * 4, out.text);  // mean, p50, p90, p99 of TTFT, TPOT and end to end
    CHECK_MESSAGE(out.text.find("40 requests") != std::string::npos, out.text);
    CHECK(read(report).find("serving log") != std::string::npos);
}

TEST_CASE("a log without latencies, or that the run does not follow request by request, is refused with the reason") {
    const Folder folder;
    const std::string scenario = folder.file("s.yaml", kScenario);
    const auto refused = [&](const std::string& trace, const std::string& more, const std::string& why) {
        (void)folder.file("trace.csv", trace);
        (void)folder.file("s.yaml", kScenario + more);
        const Outcome out = orrery_command("validate serving --log " + scenario);
        CHECK_MESSAGE(out.code == 2, out.text);
        CHECK_MESSAGE(out.text.find(why) != std::string::npos, out.text);
    };
    refused("arrival_s,prompt,output\n0,10,2\n", "", "logs no latency");
    refused("arrival_s,prompt,output,ttft_s\n0,10,2,-1\n", "", "trace.csv:2:1: error: ttft_s is -1 s");
    CHECK(orrery_command("validate serving --log " + scenario + " --fit").code == 2);
    CHECK(orrery_command("validate training --log " + scenario).code == 2);
    CHECK(orrery_command("validate serving --data " + folder.file("x")).code == 2);
}
