// Trees written as YAML read back to the same trees.

#include "sim/config/write_yaml.hpp"
#include "tests/support/command.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

using namespace orrery;
using namespace orrery::test;

TEST_CASE("every scenario, written as YAML, reads back to the same tree") {
    std::size_t count = 0;
    for (const char* folder : {"/scenarios", "/tests/data/fields", "/workloads/data"}) {
        for (const auto& entry :
             std::filesystem::recursive_directory_iterator(std::string(ORRERY_SOURCE_DIR) + folder)) {
            if (entry.path().extension() == ".yaml") {
                const YamlNode tree = load_yaml(entry.path().string());
                const std::string text = yaml_text(tree);
                CHECK_MESSAGE(canonical_text(parse_yaml(text, "text")) == canonical_text(tree), entry.path().string());
                ++count;
            }
        }
    }
    CHECK(count > 300);
}

TEST_CASE("words that YAML would take for something else are written in quotes") {
    const std::string text =
        "a: \"x: y\"\nb: 'it''s # none'\nc: \"line\\nbreak \\\"quoted\\\" \\\\\"\nd: \"\"\ne: [\"a, b\", \"{c}\"]\n"
        "f: -5\ng: \"- 5\"\nh: 400 Gbps\ni: \" padded \"\n\"k: l\": \"&m\"\nn: \"*o\"\np: \"!q\"\nr: caf\u00e9\ns: "
        "{}\nt: []\nu:\n";
    const YamlNode tree = parse_yaml(text, "text");
    const std::string again = yaml_text(tree);
    CHECK(canonical_text(parse_yaml(again, "again")) == canonical_text(tree));
    CHECK(again.find("\nf: -5\n") != std::string::npos);
    CHECK(again.find("\nh: 400 Gbps\n") != std::string::npos);
}
