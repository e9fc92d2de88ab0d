// What people reported elsewhere comes out right, is refused with its reason, or is stated as short (tests/data/cases/cases.yaml).

#include "sim/config/yaml_tree.hpp"
#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <string>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

std::string replaced(std::string text, const std::string& word, const std::string& with) {
    for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += with.size()) {
        text.replace(at, word.size(), with);
    }
    return text;
}

std::vector<std::string> texts(const YamlNode& step, const char* key) {
    std::vector<std::string> out;
    if (const YamlNode* list = step.find(key)) {
        for (const YamlNode& item : list->items) {
            out.push_back(item.scalar);
        }
    }
    return out;
}

// The file after "-o ".
std::string written(const std::string& command) {
    const auto at = command.find(" -o ");
    const std::size_t begin = at == std::string::npos ? command.size() : at + 4;
    return command.substr(begin, command.find(' ', begin) - begin);
}

void check_step(const YamlNode& step, const std::string& out) {
    const std::string in = std::string(ORRERY_SOURCE_DIR) + "/tests/data/cases";
    std::string command = replaced(replaced(step.find("do")->scalar, "IN/", in + "/"), "OUT/", out + "/");
    const YamlNode* metrics = step.find("metrics");
    const std::string summary = out + "/summary.json";
    const Outcome outcome = orrery_command(command + (metrics != nullptr ? " --force --json " + summary : ""));
    const int code = step.find("code") != nullptr ? std::atoi(step.find("code")->scalar.c_str()) : 0;
    INFO(command << "\n" << outcome.text);
    CHECK(outcome.code == code);
    if (outcome.code != code) {
        return;
    }
    for (const std::string& text : texts(step, "has")) {
        CHECK_MESSAGE(outcome.text.find(text) != std::string::npos, text);
    }
    for (const std::string& text : texts(step, "wrote")) {
        CHECK_MESSAGE(read(written(command)).find(text) != std::string::npos, text);
    }
    if (metrics == nullptr) {
        return;
    }
    const auto values = nlohmann::json::parse(read(summary))["metrics"];
    for (const YamlNode::Entry& metric : metrics->entries) {
        REQUIRE_MESSAGE(values.contains(metric.key), metric.key);
        const double value = values[metric.key]["value"];
        const double least = std::atof(metric.value.items.at(0).scalar.c_str());
        const double most = std::atof(metric.value.items.at(1).scalar.c_str());
        CHECK_MESSAGE((value >= least && value <= most),
                      fmt::format("{} is {}, not between {} and {}", metric.key, value, least, most));
    }
}

}  // namespace

TEST_CASE("what people reported elsewhere comes out right, is refused with its reason, or is stated as short") {
    const YamlNode table = load_yaml(std::string(ORRERY_SOURCE_DIR) + "/tests/data/cases/cases.yaml");
    const YamlNode* cases = table.find("cases");
    REQUIRE(cases != nullptr);
    CHECK(cases->items.size() >= 30);
    int number = 0;
    for (const YamlNode& one : cases->items) {
        INFO(one.find("case")->scalar);
        const Folder folder;
        const std::string out = folder.file(fmt::format("case-{}", number++));
        std::filesystem::create_directories(out);
        for (const YamlNode& step : one.find("steps")->items) {
            check_step(step, out);
        }
    }
}
