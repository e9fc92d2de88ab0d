#include "workloads/imports/config_text.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::imports {

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

}  // namespace orrery::imports
