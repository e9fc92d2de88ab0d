// Golden runs: every scenario against its committed metrics, a table for each folder of scenarios.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kHeader = "scenario,metric,value,low,high,unit\n";

std::string digits(const Json& value) {
    return value.is_null() ? "" : fmt::format("{:.6g}", value.get<double>());
}

// Metrics of parts (jobs of a cluster, roles of a step of reinforcement learning) are named after the part.
void add_metrics(const std::string& scenario, const std::string& part, const Json& metrics, std::string& out) {
    for (const auto& [name, metric] : metrics.items()) {
        if (!metric.contains("value")) {
            add_metrics(scenario, part + name + ".", metric, out);
            continue;
        }
        out += fmt::format("{},{}{},{},{},{},{}\n", scenario, part, name, digits(metric["value"]),
                           digits(metric["low"]), digits(metric["high"]), metric["unit"].get<std::string>());
    }
}

std::string table_of(const std::string& scenario, const Json& summary) {
    std::string out;
    add_metrics(scenario, "", summary["metrics"], out);
    for (const auto& [name, seconds] : summary["breakdown"].items()) {
        out += fmt::format("{},breakdown.{},{}\n", scenario, name, digits(seconds));
    }
    for (const auto& note : summary["notes"]) {
        out += fmt::format("{},note,{}\n", scenario, note.dump());
    }
    return out;
}

// The lines that only one of two tables has, as a diff shows them.
std::string difference(const std::string& committed, const std::string& now) {
    const auto lines = [](const std::string& text) {
        std::istringstream in(text);
        std::vector<std::string> all;
        for (std::string line; std::getline(in, line);) {
            all.push_back(line);
        }
        return all;
    };
    const std::vector<std::string> before = lines(committed);
    const std::vector<std::string> after = lines(now);
    const std::set<std::string> had(before.begin(), before.end());
    const std::set<std::string> has(after.begin(), after.end());
    std::string out;
    for (const auto& [all, others, sign] : {std::tuple(&before, &has, '-'), std::tuple(&after, &had, '+')}) {
        for (const std::string& line : *all) {
            out += others->contains(line) ? "" : fmt::format("{}{}\n", sign, line);
        }
    }
    return out.empty() ? "the same lines in another order\n" : out;
}

}  // namespace

TEST_CASE("every scenario runs to its committed metrics, to six digits") {
    // ORRERY_UPDATE_EXPECTED=1 rewrites the tables; the commit says why.
    const std::string root = ORRERY_SOURCE_DIR;
    const bool update = std::getenv("ORRERY_UPDATE_EXPECTED") != nullptr;
    std::map<std::string, std::set<std::string>> folders;
    for (const auto& entry : fs::recursive_directory_iterator(root + "/scenarios")) {
        if (entry.path().extension() == ".yaml" && entry.path().filename() != "expected.yaml" &&
            entry.path().parent_path().filename() != "sweeps") {
            folders[fs::relative(entry.path().parent_path(), root + "/scenarios").string()].insert(
                entry.path().stem().string());
        }
    }
    CHECK(folders.size() >= 4);
    std::set<std::string> tables;
    for (const auto& [folder, scenarios] : folders) {
        std::string now = kHeader;
        for (const std::string& scenario : scenarios) {
            const std::string file = fmt::format("{}/scenarios/{}/{}.yaml", root, folder, scenario);
            const Outcome out = orrery_command("run " + file + " --allow-policies --quiet --json -");
            CHECK_MESSAGE(out.code == 0, file << "\n" << out.text);
            if (out.code == 0) {
                now += table_of(scenario, Json::parse(out.text));
            }
        }
        const std::string table = fmt::format("{}/tests/expected/{}.csv", root, folder);
        tables.insert(fs::path(table).lexically_normal().string());
        if (update) {
            fs::create_directories(fs::path(table).parent_path());
            std::ofstream(table) << now;
        }
        const std::string committed = fs::exists(table) ? read(table) : "";
        CHECK_MESSAGE(now == committed, table << "\n" << difference(committed, now));
    }
    // A table of scenarios that are gone would look like a test.
    for (const auto& entry : fs::recursive_directory_iterator(root + "/tests/expected")) {
        if (entry.is_regular_file()) {
            CHECK_MESSAGE(tables.contains(entry.path().lexically_normal().string()), entry.path().string());
        }
    }
}
