#include "tools/driver/group_names.hpp"

#include "tools/driver/scenario_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace orrery::driver {

std::vector<std::string> names_in(const std::string& list) {
    std::vector<std::string> out;
    std::istringstream parts(list);
    for (std::string name; std::getline(parts, name, ',');) {
        name.erase(0, name.find_first_not_of(' '));
        name.erase(name.find_last_not_of(' ') + 1);
        out.push_back(std::move(name));
    }
    return out;
}

void check_group_names(const YamlNode& root, const std::vector<const char*>& path,
                       const std::vector<std::string>& names, const Scenario& scenario,
                       std::vector<Diagnostic>& errors) {
    std::vector<std::string> known;
    for (const GroupSpec& group : scenario.cluster.groups) {
        known.push_back(group.name);
    }
    if (known.empty() && root.find("cluster") != nullptr && names_lines_of(errors, root, "cluster")) {
        return;  // nobody knows what groups were meant
    }
    // What an override sets has no line of its own: the section has.
    Mark mark = root.mark;
    const YamlNode* node = &root;
    std::string key;
    for (const char* part : path) {
        node = node != nullptr ? node->find(part) : nullptr;
        mark = node != nullptr && node->mark.line > 0 ? node->mark : mark;
        key += (key.empty() ? "" : ".") + std::string(part);
    }
    const auto refuse = [&](const std::string& text) { errors.push_back(mark.error(text)); };
    std::set<std::string> seen;
    for (const std::string& name : names) {
        if (known.empty()) {
            return refuse(fmt::format("{} names '{}', but the cluster has no groups", key, name));
        }
        if (std::find(known.begin(), known.end(), name) == known.end()) {
            const std::string guess = nearest_name(name, known);
            refuse(fmt::format("the cluster has no group '{}'{}", name,
                               guess.empty() ? "" : fmt::format(" (did you mean '{}'?)", guess)));
        } else if (!seen.insert(name).second) {
            refuse(fmt::format("{} names '{}' twice", key, name));
        }
    }
}

}  // namespace orrery::driver
