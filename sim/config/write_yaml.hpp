#pragma once
// A tree of YAML as text that people edit: maps one key a line, short ones in braces.

#include "sim/config/yaml_tree.hpp"

#include <string>

namespace orrery::config {

/// The tree as YAML, which reads back to the same tree. Comments are not in a tree, and get lost.
[[nodiscard]] std::string yaml_text(const YamlNode& node);

}  // namespace orrery::config
