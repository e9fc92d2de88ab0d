#include "workloads/imports/config_text.hpp"

#include "workloads/imports/shell_script.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace orrery::imports {

YamlNode expected_yaml(const std::string& text, const std::string& name, const std::string& expected) {
    bool empty = true;
    for (const std::string_view line : split(std::string_view(text), '\n')) {
        const std::size_t first = line.find_first_not_of(" \t\r");
        empty = empty && (first == std::string_view::npos || line[first] == '#' || line.substr(first, 3) == "---");
    }
    if (empty) {
        throw ConfigError({Diagnostic{name, 1, 1, fmt::format("expected {}, and the file is empty", expected),
                                      ErrorCode::invalid_yaml}});
    }
    try {
        return parse_yaml(text, name);
    } catch (const ConfigError& error) {
        std::vector<Diagnostic> problems = error.diagnostics();
        for (Diagnostic& problem : problems) {
            problem.line = std::max(problem.line, 1);
            problem.column = std::max(problem.column, 1);
        }
        problems.front().text = fmt::format("expected {}, and found no YAML: {}", expected, problems.front().text);
        throw ConfigError(problems);
    }
}

ConfigText::ConfigText(const YamlNode& root) : start_(root.mark) {
    add(root, "", root.mark);
}

void ConfigText::add(const YamlNode& node, const std::string& path, const Mark& mark) {
    const std::string prefix = path.empty() ? "" : path + ".";
    if (node.kind == YamlNode::Kind::map) {
        for (const YamlNode::Entry& entry : node.entries) {
            add(entry.value, prefix + entry.key, entry.key_mark);
        }
        return;
    }
    Value value{node.kind == YamlNode::Kind::scalar ? node.scalar : "", mark};
    if (node.kind == YamlNode::Kind::sequence) {
        for (std::size_t i = 0; i < node.items.size(); ++i) {
            const YamlNode& item = node.items[i];
            if (item.kind == YamlNode::Kind::scalar) {
                value.text += (value.text.empty() ? "" : ", ") + item.scalar;
            } else {
                add(item, fmt::format("{}{}", prefix, i), item.mark);
            }
        }
    }
    if (!path.empty()) {
        values_[path] = std::move(value);
    }
}

bool ConfigText::has(const std::string& key) {
    const bool found = values_.contains(key);
    if (found) {
        used_.insert(key);
    }
    return found;
}

std::string ConfigText::text(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
        if (has(key)) {
            return values_.at(key).text;
        }
    }
    return "";
}

std::optional<std::int64_t> ConfigText::whole(const std::vector<std::string>& keys, double most, double least,
                                              const std::string& absent) {
    for (const std::string& key : keys) {
        if (!has(key)) {
            continue;
        }
        const std::string value = values_.at(key).text;
        if (value.empty() || value == "null" || value == "None" || value == "~" ||
            (!absent.empty() && value == absent)) {
            continue;
        }
        double number = 0;
        if (!parse_number(value, number) || number != std::floor(number) || number < least || number > most) {
            throw ConfigError(
                {error({key}, fmt::format("expected '{}' to be a whole number from {:.0f} to {:.0f}, and found '{}'",
                                          key, least, most, printable(value, 100)))});
        }
        return static_cast<std::int64_t>(number);
    }
    return std::nullopt;
}

bool ConfigText::is_true(const std::vector<std::string>& keys) {
    const std::string value = text(keys);
    return value == "true" || value == "True" || value == "TRUE" || value == "1";
}

Diagnostic ConfigText::error(const std::vector<std::string>& keys, const std::string& problem) const {
    for (const std::string& key : keys) {
        if (const auto found = values_.find(key); found != values_.end()) {
            return found->second.mark.error(problem, ErrorCode::malformed_trace);
        }
    }
    Mark start = start_;
    start.line = std::max(1, start.line);
    start.column = std::max(1, start.column);
    return start.error(problem, ErrorCode::malformed_trace);
}

std::vector<std::string> ConfigText::keys() const {
    std::vector<std::string> out;
    for (const auto& [key, value] : values_) {
        out.push_back(key);
    }
    return out;
}

void ConfigText::count(ImportNotes& notes, const std::vector<FlagGroup>& groups) const {
    std::map<std::size_t, std::vector<std::string>> left;  // by group from 1 on; 0: of none
    for (const auto& [key, value] : values_) {
        if (used_.contains(key)) {
            continue;
        }
        std::size_t group = 0;
        for (std::size_t i = 0; i < groups.size() && group == 0; ++i) {
            for (const std::string_view name : split(std::string_view(groups[i].flags), ' ')) {
                const bool below =
                    !name.empty() && name.back() == '.' && (key.rfind(name, 0) == 0 || key + "." == name);
                group = below || key == name ? i + 1 : group;
            }
        }
        left[group].push_back(printable(key, 80));
    }
    notes.read("keys", used_.size());
    name_left_out(notes, groups, left);
}

// Gives what an override has made its place in the text.
static void place(YamlNode& node, const Mark& mark) {
    node.mark = mark;
    for (YamlNode& item : node.items) {
        place(item, mark);
    }
    for (YamlNode::Entry& entry : node.entries) {
        entry.key_mark = mark;
        place(entry.value, mark);
    }
}

static void place_override(YamlNode& root, const std::string& key, const Mark& mark) {
    YamlNode* node = &root;
    for (const std::string_view part : split(std::string_view(key), '.')) {
        const auto entry = std::find_if(node->entries.begin(), node->entries.end(),
                                        [&](const YamlNode::Entry& one) { return one.key == part; });
        if (entry == node->entries.end()) {
            return;
        }
        entry->key_mark = mark;
        entry->value.mark = mark;
        node = &entry->value;
    }
    place(*node, mark);
}

std::optional<YamlNode> read_overrides(const std::string& text, const std::string& name) {
    YamlNode root;
    root.kind = YamlNode::Kind::map;
    root.mark = {std::make_shared<const std::string>(name), 1, 1};
    bool any = false;
    for (const CommandCall& command : read_shell(text, name).commands) {
        for (const CommandWord& word : command.words) {
            const std::size_t start = std::min(word.text.find_first_not_of('+'), word.text.size());
            const std::size_t equals = word.text.find('=');
            const std::string key = word.text.substr(start, equals == std::string::npos ? 0 : equals - start);
            const bool plain =
                key.find('.') != std::string::npos &&
                key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") ==
                    std::string::npos;
            if (plain && word.unset.empty()) {
                try {
                    const bool empty = equals + 1 == word.text.size();  // to Hydra a text of no letters
                    apply_override(root, word.text.substr(start) + (empty ? "''" : ""));
                } catch (const ConfigError& error) {
                    throw ConfigError({diagnostic_at(name, text, word.at, error.diagnostics().front().text)});
                }
                const Diagnostic at = diagnostic_at(name, text, word.at, "");
                place_override(root, key, Mark{root.mark.file, at.line, at.column});
                any = true;
            }
        }
    }
    return any ? std::optional(std::move(root)) : std::nullopt;
}

}  // namespace orrery::imports
