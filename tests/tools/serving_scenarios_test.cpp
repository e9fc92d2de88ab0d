// Every serving scenario as a user meets it: written out resolved and read back.

#include "tests/support/command.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

using namespace orrery;
using namespace orrery::test;

namespace {

// All serving scenarios of the tree, sorted.
std::vector<std::string> serving_scenarios() {
    std::vector<std::string> out;
    const std::string root = std::string(ORRERY_SOURCE_DIR) + "/scenarios";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
        const std::string path = entry.path().string();
        if (entry.path().extension() == ".yaml" && read(path).find("\nkind: serving\n") != std::string::npos) {
            out.push_back(path);
        }
    }
    std::sort(out.begin(), out.end());
    REQUIRE(out.size() > 20);
    return out;
}

}  // namespace

TEST_CASE("serving: every scenario, written out resolved, reads back and runs to the same summary") {
    for (const std::string& path : serving_scenarios()) {
        const Scenario first = load_scenario(path, {"requests.count=40"}, test::data());
        const std::string resolved = resolved_json(first);
        Scenario second;
        CHECK_NOTHROW_MESSAGE(second = read_scenario(parse_yaml(resolved, "resolved"), first.name, test::data()), path);
        CHECK_MESSAGE(resolved_json(second) == resolved, path);
        CHECK_MESSAGE(to_json(run(second, test::models(), {}).summary, false) ==
                          to_json(run(first, test::models(), {}).summary, false),
                      path);
    }
}

TEST_CASE("serving: a resolved scenario in another folder finds its trace") {
    const Folder folder;
    std::filesystem::create_directories(folder.file("in"));
    std::filesystem::create_directories(folder.file("out"));
    (void)folder.file("in/requests.csv", "arrival_s,prompt,output\n0,100,5\n1,200,7\n");
    const std::string scenario = folder.file("in/s.yaml", R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-2-7b
requests: {trace: requests.csv}
)");
    const std::string resolved = folder.file("out/r.yaml");
    REQUIRE(orrery_command(fmt::format("run {} --quiet --json {} --resolved {}", scenario, folder.file("a"), resolved))
                .code == 0);
    CHECK(read(resolved).find("../in/requests.csv") != std::string::npos);
    const Outcome again = orrery_command(fmt::format("run {} --quiet --json {}", resolved, folder.file("b")));
    CHECK_MESSAGE(again.code == 0, again.text);
    const auto metrics = [&](const std::string& name) {
        const std::string text = read(folder.file(name));
        return text.substr(text.find("\"metrics\""));
    };
    CHECK(metrics("a") == metrics("b"));
}

TEST_CASE("serving: replicas for prompts alone are refused, and so are those for decoding alone") {
    const auto text = [](const char* engine) {
        return fmt::format(
            "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-2-7b\nengine: {}\n", engine);
    };
    CHECK(refusal(text("{decode: {tensor: 2}}")).find("test.yaml:5:9: error: 'prefill' and 'decode'") !=
          std::string::npos);
    CHECK(refusal(text("{prefill: {tensor: 2}}")).find("one of them is missing") != std::string::npos);
    CHECK(refusal(text("{prefill: {tensor: 2}, decode: {tensor: 2}}")).empty());
}
