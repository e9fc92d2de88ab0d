#pragma once
// TOML (1.0) as a tree in which every value knows its line and column, as YAML has it here.

#include "sim/config/yaml_tree.hpp"

#include <string>

namespace orrery::imports {

/// Numbers, booleans and dates stay text. Throws ConfigError with what was expected and found, and where.
[[nodiscard]] YamlNode parse_toml(const std::string& text, const std::string& name);

}  // namespace orrery::imports
