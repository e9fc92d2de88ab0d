// Runs that measured nothing, and which way metrics are better.

#include "sim/base/text.hpp"
#include "sim/record/metric_table.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <sstream>

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr const char* kServing =
    "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\nslo: {ttft: 1 s}\n";

}  // namespace

TEST_CASE("a window that ends before it begins and a trace without requests are bad input") {
    const Folder folder;
    (void)folder.file("empty.csv", "\n");
    (void)folder.file("header.csv", "arrival_s,prompt,output\n");
    (void)folder.file("two.csv", "arrival_s,prompt,output\n0,10,2\n1,10,2\n");
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"measure: {from: 5 s, to: 2 s}\n", "s.yaml:6:17: error: 'measure' is from 5 s to 2 s"},
        {"measure: {from: 5 s, to: 5 s}\n", "it must end after it begins"},
        {"requests: {trace: empty.csv}\n", "empty.csv:1:1: error: has no request"},
        {"requests: {trace: header.csv}\n", "header.csv:1:1: error: has no request"},
        {"requests: {trace: two.csv, from: 5 s}\n", "the last one read comes 1 s after the first"},
        {"requests: {count: 20, sample: 1e-6}\n", "leaves no request"},
    };
    for (const auto& [section, expected] : cases) {
        const Outcome out = orrery_command("run " + folder.file("s.yaml", kServing + section));
        CHECK_MESSAGE(out.code == 2, section << out.text);
        CHECK_MESSAGE(out.text.find(expected) != std::string::npos, section << out.text);
    }
}

TEST_CASE("a window in which no request came gives null metrics and a warning, and a check fails") {
    const Folder folder;
    const std::string text = std::string(kServing) + "requests: {count: 5}\n";
    const std::string scenario = folder.file("s.yaml", text);
    const std::string json = folder.file("out.json");
    const std::string late = " --set measure.from='1000 s'";
    const Outcome out = orrery_command("run " + scenario + late + " --json " + json);
    CHECK_MESSAGE(out.code == 0, out.text);
    CHECK_MESSAGE(
        out.text.find("\nwarning: no request that came in the measured time was answered") != std::string::npos,
        out.text);
    CHECK_MESSAGE(out.text.find("not measured") != std::string::npos, out.text);
    const auto metrics = nlohmann::json::parse(read(json))["metrics"];
    for (const char* name : {"slo_attainment", "goodput_rps", "requests_per_s", "output_tokens_per_s"}) {
        CHECK_MESSAGE(metrics[name]["value"].is_null(), name);
    }
    for (const char* name : {"ttft_s", "tpot_s", "tbt_s", "e2e_s"}) {
        for (const char* quantile : {"mean", "p50", "p99", "max"}) {
            CHECK_MESSAGE(metrics[name][quantile]["value"].is_null(), name);
        }
    }
    CHECK(metrics["requests"]["value"] == 0);

    const std::string baseline = folder.file("b.yaml");
    REQUIRE(orrery_command(fmt::format("check {} --update --scenario {} --reason first", baseline, scenario)).code ==
            0);
    CHECK(orrery_command("check " + baseline).code == 0);
    (void)folder.file("s.yaml", text + "measure: {from: 1000 s}\n");
    const std::string junit = folder.file("junit.xml");
    const Outcome check = orrery_command(fmt::format("check {} --junit {}", baseline, junit));
    CHECK(check.code == 1);
    CHECK_MESSAGE(check.text.find("NOT MEASURED") != std::string::npos, check.text);
    CHECK(read(junit).find("but nothing was measured") != std::string::npos);
    // There is nothing to pin.
    const Outcome update = orrery_command("check " + baseline + " --update --reason second");
    CHECK(update.code == 2);
    CHECK_MESSAGE(update.text.find("the run measured nothing of") != std::string::npos, update.text);
    CHECK(orrery_command("capacity " + scenario).code == 2);
    CHECK(orrery_command("explain " + scenario).text.find("nothing was measured") != std::string::npos);
    CHECK(orrery_command("run " + scenario + " --report " + folder.file("r.html")).code == 0);
}

TEST_CASE("a sweep has no value for what a point did not measure") {
    const Folder folder;
    (void)folder.file("base.yaml", std::string(kServing) + "requests: {count: 5}\n");
    const std::string sweep = folder.file(
        "sweep.yaml",
        "orrery: 1\nkind: sweep\nbase: base.yaml\naxes: {measure.from: [0 s, 1000 s]}\nkeep: [ttft_s.p99, requests]\n");
    const std::string db = folder.file("db");
    const Outcome out = orrery_command(fmt::format("sweep {} --db {}", sweep, db));
    REQUIRE_MESSAGE(out.code == 0, out.text);
    const auto rows = nlohmann::json::parse(orrery_command("table " + db + " --format json").text);
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["ttft_s.p99"].get<double>() > 0);
    CHECK(rows[1]["ttft_s.p99"].is_null());
    CHECK(rows[1]["requests"] == 0);
}

TEST_CASE("every metric of every scenario has a row with its unit, its meaning and which way it is better") {
    std::set<std::string> known;
    for (const MetricRow& row : metric_table()) {
        CHECK_MESSAGE(known.insert(row.name).second, row.name);
    }
    std::size_t metrics = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/tests/expected")) {
        if (!entry.is_regular_file()) {
            continue;
        }
        std::istringstream table(read(entry.path().string()));
        std::string line;
        std::getline(table, line);
        REQUIRE(line == "scenario,metric,value,low,high,unit");
        while (std::getline(table, line)) {
            // In front of a metric may be the name of a job, and behind it a quantile.
            const auto cells = split(line, ',');
            const std::string name(cells[1]);
            const auto words = split(name, '.');
            if (name == "note" || words[0] == "breakdown") {
                continue;
            }
            ++metrics;
            const MetricRow* row = row_of_metric(name);
            CHECK_MESSAGE((row != nullptr && cells[5] == row->unit), name);
            CHECK_MESSAGE(std::any_of(words.begin(), words.end(),
                                      [&](std::string_view word) { return known.contains(std::string(word)); }),
                          name);
        }
    }
    CHECK(metrics > 1000);
    // And what it means: a sentence of at most 25 words, which the list and the help print.
    const std::string list = orrery_command("list metrics").text;
    for (const MetricRow& row : metric_table()) {
        const std::string meaning = row.meaning;
        CHECK_MESSAGE((meaning.size() > 10 && meaning.back() == '.' && std::isupper(meaning[0]) != 0), row.name);
        CHECK_MESSAGE(split(meaning, ' ').size() <= 25, row.name);
        CHECK_MESSAGE(list.find(meaning) != std::string::npos, row.name);
    }
    const std::string help = orrery_command("help ttft_s.p99").text;
    CHECK_MESSAGE(help.find("Time to first token") != std::string::npos, help);
    CHECK_MESSAGE(help.find("lower is better") != std::string::npos, help);
    CHECK(orrery_command("help tftt_s").text.find("did you mean 'ttft_s'?") != std::string::npos);
    CHECK(better_of("ttft_s.p99") == Better::lower);
    CHECK(better_of("output_tokens_per_s") == Better::higher);
    CHECK(better_of("mfu.tpot_s.p99") == Better::lower);  // a job that is called mfu
    CHECK(better_of("breakdown.bubble") == Better::lower);
    CHECK(better_of("requests") == Better::neither);
    CHECK(better_of("plan.tensor") == Better::neither);
    CHECK(better_of("") == Better::neither);
}

TEST_CASE("a Pareto front goes along the better side of both metrics, and asks where there is none") {
    const Folder folder;
    (void)folder.file("base.yaml", kSmallTraining);
    const std::string sweep = folder.file("sweep.yaml",
                                          "orrery: 1\nkind: sweep\nbase: base.yaml\naxes: {plan.tensor: [1, 2, 4, "
                                          "8], plan.micro_batch: [1]}\nderive: {plan.data: 8 / plan.tensor}\n");
    const std::string db = folder.file("db");
    REQUIRE(orrery_command(fmt::format("sweep {} --db {}", sweep, db)).code == 0);
    // Time and rate are one thing turned round, so both have the same points on their fronts.
    const auto front = [&](const std::string& y) {
        const Outcome out = orrery_command(fmt::format("plot pareto {} --y {}", db, y));
        REQUIRE_MESSAGE(out.code == 0, out.text);
        std::set<std::string> memory;  // of the points on the front
        for (std::size_t at = out.text.find(">front: "); at != std::string::npos;
             at = out.text.find(">front: ", at + 1)) {
            memory.insert(out.text.substr(at, out.text.find(',', at) - at));
        }
        return memory;
    };
    CHECK(front("iteration_time_s") == front("tokens_per_s"));
    CHECK(front("iteration_time_s").size() == 4);  // more tensor parallelism is slower and leaner
    CHECK(orrery_command(fmt::format("plot pareto {} --y tokens_per_s", db))
              .text.find("lower memory per GPU, GiB and higher tokens per s is better") != std::string::npos);
    const Outcome asked = orrery_command(fmt::format("plot pareto {} --x plan.tensor --y mfu", db));
    CHECK(asked.code == 2);
    CHECK_MESSAGE(asked.text.find("say --lower plan.tensor or --higher plan.tensor") != std::string::npos, asked.text);
    CHECK(orrery_command(fmt::format("plot pareto {} --x plan.tensor --y mfu --lower plan.tensor", db)).code == 0);
    const Outcome table = orrery_command("table " + db);
    CHECK_MESSAGE(table.text.find("iteration_time_s \u2193") != std::string::npos, table.text);
    CHECK_MESSAGE(table.text.find("mfu \u2191") != std::string::npos, table.text);
}
