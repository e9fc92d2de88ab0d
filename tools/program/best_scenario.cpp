#include "tools/program/best_scenario.hpp"

#include "sim/config/write_yaml.hpp"
#include "sim/config/yaml_tree.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/program/outputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace orrery::program {

namespace {

std::string key_of(const std::string& assignment) {
    return assignment.substr(0, assignment.find('='));
}

// Whether one of two paths is the other or contains it.
bool overlap(const std::string& a, const std::string& b) {
    return (a + ".").starts_with(b + ".") || (b + ".").starts_with(a + ".");
}

void take_out(YamlNode& root, const std::string& path) {
    YamlNode* at = &root;
    const auto dot = path.rfind('.');
    for (std::size_t start = 0; dot != std::string::npos && start < dot && at != nullptr;) {
        const std::size_t end = std::min(path.find('.', start), dot);
        at = at->find(path.substr(start, end - start));
        start = end + 1;
    }
    if (at != nullptr) {
        const std::string key = dot == std::string::npos ? path : path.substr(dot + 1);
        std::erase_if(at->entries, [&](const YamlNode::Entry& entry) { return entry.key == key; });
    }
}

}  // namespace

std::string set_words(const CommandLine& line, const std::vector<std::string>& assignments) {
    std::vector<std::string> all;
    for (const std::string& own : line.overrides()) {
        const bool replaced = std::any_of(assignments.begin(), assignments.end(), [&](const std::string& one) {
            return (key_of(own) + ".").starts_with(key_of(one) + ".");
        });
        if (!replaced) {
            all.push_back(own);
        }
    }
    all.insert(all.end(), assignments.begin(), assignments.end());
    std::string out;
    for (const std::string& assignment : all) {
        const bool plain = assignment.find_first_of(" '\"{}[]*$&;()<>|\\") == std::string::npos;
        out += plain ? " --set " + assignment : " --set '" + assignment + "'";
    }
    return out;
}

void check_best_scenario(const CommandLine& line, const std::vector<std::string>& files) {
    if (!line.has("output")) {
        return;
    }
    const std::string& file = line.arguments[0];
    if (file == "-") {
        throw ConfigError("--output writes a scenario like the one that was read, which must be a file for that",
                          ErrorCode::command_line);
    }
    namespace fs = std::filesystem;
    const auto folder = [](const std::string& path) { return fs::weakly_canonical(fs::absolute(path).parent_path()); };
    if (line.text("output") != "-" && !files.empty() && folder(file) != folder(line.text("output"))) {
        throw ConfigError(
            fmt::format("--output {}: the scenario names files by their place beside it ({}): write the new one "
                        "into the same folder",
                        line.text("output"), files.front()),
            ErrorCode::command_line);
    }
}

void write_best_scenario(const CommandLine& line, const DataDirectory& data, const std::vector<std::string>& without,
                         const std::vector<std::string>& assignments, const std::string& found) {
    YamlNode root = load_yaml(line.arguments[0]);
    for (const std::string& own : line.overrides()) {
        const bool gone = std::any_of(without.begin(), without.end(),
                                      [&](const std::string& path) { return overlap(key_of(own), path); });
        if (!gone) {
            apply_override(root, own);
        }
    }
    for (const std::string& path : without) {
        take_out(root, path);
    }
    for (const std::string& assignment : assignments) {
        apply_override(root, assignment);
    }
    const std::string text = yaml_text(root);
    ORRERY_ASSERT(canonical_text(parse_yaml(text, "best")) == canonical_text(root));
    (void)read_scenario(parse_yaml(text, line.text("output")), "best", data);
    write_output(line, "output", fmt::format("# {}\n{}", found, text));
}

}  // namespace orrery::program
