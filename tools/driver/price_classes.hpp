#pragma once
// Prices that a scenario names by their class: cluster.node.gpu.price: spot.
//
// The table is models/data/prices.yaml, with the source of each price. Limits: a class is of presets; a device that a file of the
// user's own describes has the price of the preset that it starts from, or none.

#include "sim/config/data_directory.hpp"
#include "sim/config/yaml_tree.hpp"

#include <string>
#include <vector>

namespace orrery::driver {

/// "on-demand", "reserved", "spot" and "owned".
[[nodiscard]] const std::vector<std::string>& price_classes();

/// Replaces each class of prices below `root` by the price of its device, per GPU and hour, with its source.
void resolve_prices(YamlNode& root, const DataDirectory& data, std::vector<Diagnostic>& errors);

}  // namespace orrery::driver
