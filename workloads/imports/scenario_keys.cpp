#include "workloads/imports/scenario_keys.hpp"

#include "sim/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::imports {

void ScenarioKeys::set(const std::string& path, const std::string& value) {
    if (value.empty()) {
        return;
    }
    std::vector<Node>* level = &sections_;
    Node* node = nullptr;
    for (const std::string_view name : split(path, '.')) {
        auto found = std::find_if(level->begin(), level->end(), [&](const Node& one) { return one.name == name; });
        if (found == level->end()) {
            found = level->insert(level->end(), {std::string(name), "", {}});
        }
        node = &*found;
        level = &node->children;
    }
    node->value = value;
}

std::string ScenarioKeys::flow(const Node& node) {
    if (node.children.empty()) {
        return node.value;
    }
    std::string out;
    for (const Node& child : node.children) {
        out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", child.name, flow(child));
    }
    return "{" + out + "}";
}

std::string ScenarioKeys::yaml() const {
    std::string out;
    for (const Node& section : sections_) {
        out += section.name + ":\n";
        for (const Node& key : section.children) {
            out += fmt::format("  {}: {}\n", key.name, flow(key));
        }
    }
    return out;
}

}  // namespace orrery::imports
