// What a scenario may say: the reference, and help on keys.

#include "tools/reference/reference.hpp"
#include "sim/config/synonyms.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <set>

using namespace orrery;
using namespace orrery::test;

TEST_CASE("the reference of the scenario language is that of this version, and names every key with its meaning") {
    const std::string path = std::string(ORRERY_SOURCE_DIR) + "/scenarios/REFERENCE.md";
    const Outcome printed = orrery_command("help reference");
    CHECK(printed.code == 0);
    if (std::getenv("ORRERY_UPDATE_EXPECTED") != nullptr) {
        std::ofstream(path) << printed.text;
    }
    CHECK(read(path) == printed.text);
    for (const std::string& kind : reference_kinds()) {
        for (const KeyReference& row : reference_of_kind(kind, data())) {
            const std::string key = kind + ": " + row.path;
            CHECK_MESSAGE(!row.doc.empty(), key);
            CHECK_MESSAGE(!row.type.empty(), key);
            CHECK_MESSAGE((row.section || kind == "sweep" || !row.example.empty()), key);
        }
    }
}

TEST_CASE("the example of a key is a value that the key takes") {
    const Folder folder;
    const std::string base = folder.file("base.yaml", kSmallTraining);
    for (const KeyReference& row : reference_of_kind("training", data())) {
        // What a plan or a network must be as a whole is not the matter here: only single values are.
        if (row.section || row.path.find('.') == std::string::npos || row.path.rfind("network.", 0) == 0 ||
            row.path.find("preset") != std::string::npos || row.path == "cluster.hosts" ||
            row.path.rfind("cluster.groups[].fabric.", 0) == 0) {  // as cluster.fabric
            continue;
        }
        YamlNode root = load_yaml(base);
        if (!row.policy.empty() && row.path.rfind("cluster.fabric.", 0) == 0) {
            apply_override(root, "cluster.fabric.kind=" + row.policy);
        } else if (!row.policy.empty()) {
            apply_override(root, row.path.substr(0, row.path.rfind('.')) + ".kind=" + row.policy);
        }
        apply_override(root, row.path + "=" + row.example);
        std::string text;
        try {
            (void)read_scenario(root, "example", data());
        } catch (const ConfigError& error) {
            text = error.what();
        }
        const std::string key = row.path.substr(row.path.rfind('.') + 1);
        CHECK_MESSAGE(text.find("'" + key + "'") == std::string::npos, row.path << ": " << row.example << "\n" << text);
    }
}

TEST_CASE("help tells of a kind and of a key, and leads to what was meant") {
    const Outcome tensor = orrery_command("help training plan.tensor");
    CHECK(tensor.code == 0);
    for (const char* said : {"tensor-parallel degree", "whole number, 1 to 1024", "default  1", "example  tensor: "}) {
        CHECK_MESSAGE(tensor.text.find(said) != std::string::npos, tensor.text);
    }
    CHECK(orrery_command("help training").text.find("plan:") != std::string::npos);
    CHECK(orrery_command("help serving engine.router").text.find("round-robin") != std::string::npos);
    CHECK(orrery_command("help sweep axes").text.find("keys of the scenario") != std::string::npos);
    CHECK(orrery_command("help sweep").text.find("usage: orrery sweep") != std::string::npos);
    for (const std::string& kind : scenario_kind_names()) {
        const Outcome expect = orrery_command("help " + kind + " expect");
        CHECK_MESSAGE(expect.code == 0, expect.text);
        CHECK_MESSAGE(expect.text.find("bounds of metrics") != std::string::npos, expect.text);
        CHECK_MESSAGE(scenario_schema(*find_kind(kind), data()).find("bounds of metrics") != std::string::npos, kind);
    }
    CHECK(orrery_command("manual 5").text.find("bounds of metrics") != std::string::npos);
    const std::vector<std::pair<const char*, const char*>> wrong = {
        {"help training tp", "it is 'plan.tensor' here"}, {"help training plan.tensr", "did you mean 'plan.tensor'?"},
        {"help training tensor", "there is plan.tensor"}, {"help run plan.tensor", "'run' has no keys"},
        {"help trainig", "unknown command 'trainig'"},
    };
    for (const auto& [arguments, expected] : wrong) {
        const Outcome out = orrery_command(arguments);
        CHECK_MESSAGE(out.code == 2, arguments);
        CHECK_MESSAGE(out.text.find(expected) != std::string::npos, out.text);
    }
}

TEST_CASE("every synonym leads to a key that there is, and no word stands twice") {
    std::set<std::string> keys;
    for (const std::string& kind : reference_kinds()) {
        for (const KeyReference& row : reference_of_kind(kind, data())) {
            keys.insert(row.path);
        }
    }
    std::set<std::string> words;
    for (const Synonym& one : synonym_table()) {
        CHECK_MESSAGE(words.insert(one.word).second, one.word);
        for (const char* key : one.keys) {
            CHECK_MESSAGE(keys.contains(key), one.word << " -> " << key);
        }
    }
}
