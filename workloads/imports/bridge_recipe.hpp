#pragma once
// Recipes of Megatron-Bridge by name, as the configuration that they start from.

#include "sim/config/data_directory.hpp"

#include <string>

namespace orrery::imports {

/// The name of a recipe in what a file or a command line calls it: "megatron.bridge.recipes.llama.llama3_70b.pretrain_config" and
/// "llama3_70b_pretrain_config" are llama3_70b. Empty where it is none.
[[nodiscard]] std::string bridge_recipe(const std::string& written);

/// The configuration of a recipe (YAML; model, train, optimizer, ddp, comm_overlap and mixed_precision). Throws ConfigError without a
/// place, with the names that are known, where workloads/data/bridge_recipes.csv has no such row.
[[nodiscard]] std::string bridge_defaults(const std::string& recipe, const DataDirectory& data);

}  // namespace orrery::imports
