#pragma once
// A sweep file while it is read: its tree, the errors found so far, and the keys that something sets already.

#include "sim/config/yaml_tree.hpp"

#include <map>
#include <string>
#include <vector>

namespace orrery::sweep {

struct SweepTree {
    const YamlNode& root;
    std::vector<Diagnostic> errors;
    std::map<std::string, Mark> claimed;  ///< where each key is set

    void fail(const YamlNode& node, const std::string& text, ErrorCode code = ErrorCode::contradiction) {
        errors.push_back(node.mark.error(text, code));
    }
    void unknown_keys(const YamlNode& node, const std::vector<std::string>& known);
    /// The map at a key of the file; null when there is none, or something else, which is an error.
    [[nodiscard]] const YamlNode* map_at(const char* key);
    [[nodiscard]] bool scalar_of(const YamlNode& node, const std::string& key);
    /// A key of the scenario is set by what stands at `mark`.
    void claim(const std::string& key, const Mark& mark);
    /// False, and an error, unless the node is a whole number within the limits.
    [[nodiscard]] bool whole(const YamlNode& node, const char* what, double least, double most, double& value);
};

}  // namespace orrery::sweep
