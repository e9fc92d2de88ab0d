#include "tools/sweep/sweep_tree.hpp"

#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::sweep {

void SweepTree::unknown_keys(const YamlNode& node, const std::vector<std::string>& known) {
    for (const YamlNode::Entry& entry : node.entries) {
        if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
            const std::string nearest = nearest_name(entry.key, known);
            errors.push_back(
                entry.key_mark.error(fmt::format("unknown key '{}'{}", entry.key,
                                                 nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)),
                                     ErrorCode::unknown_key));
        }
    }
}

const YamlNode* SweepTree::map_at(const char* key) {
    const YamlNode* node = root.find(key);
    if (node != nullptr && node->kind != YamlNode::Kind::map) {
        fail(*node, fmt::format("'{}' must be a map", key), ErrorCode::wrong_type);
        return nullptr;
    }
    return node;
}

bool SweepTree::scalar_of(const YamlNode& node, const std::string& key) {
    if (node.kind == YamlNode::Kind::scalar && !node.scalar.empty()) {
        return true;
    }
    fail(node, fmt::format("'{}' must be a single value", key), ErrorCode::wrong_type);
    return false;
}

void SweepTree::claim(const std::string& key, const Mark& mark) {
    if (!claimed.try_emplace(key, mark).second) {
        errors.push_back(mark.error(fmt::format("'{}' is set twice", key), ErrorCode::duplicate_key));
    }
    const bool hole = key.empty() || key.front() == '.' || key.back() == '.' || key.find("..") != std::string::npos;
    if (hole || key.find_first_of(",= \n") != std::string::npos) {
        errors.push_back(mark.error(fmt::format("'{}' is not the path of a value, such as plan.tensor", key)));
    }
    if (key == "kind" || key == "orrery") {
        errors.push_back(mark.error(fmt::format("'{}' cannot be swept", key)));
    }
}

bool SweepTree::whole(const YamlNode& node, const char* what, double least, double most, double& value) {
    if (node.kind == YamlNode::Kind::scalar && parse_number(node.scalar, value) && value == std::floor(value) &&
        value >= least && value <= most) {
        return true;
    }
    fail(node, fmt::format("'{}' must be a whole number between {:.0f} and {:.0f}", what, least, most),
         ErrorCode::wrong_type);
    return false;
}

}  // namespace orrery::sweep
