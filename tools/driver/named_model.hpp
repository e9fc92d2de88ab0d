#pragma once
// Scenarios that name a checkpoint in place of a preset: model: Qwen/Qwen3-32B-FP8.

#include "sim/config/data_directory.hpp"
#include "sim/config/yaml_tree.hpp"

#include <string>
#include <vector>

namespace orrery::driver {

/// The scenario with the preset that the checkpoint's name leads to, and in serving with its precision as the engine's, unless the
/// scenario says another. Adds to `notes` what the checkpoint has that its preset does not describe. A name that leads to no preset
/// stays, to be refused where it is read. Errors: a quantised checkpoint that is to be trained.
[[nodiscard]] YamlNode with_named_models(const YamlNode& root, const DataDirectory& data,
                                         std::vector<Diagnostic>& errors, std::vector<std::string>& notes);

/// Adds what the description of a model leaves out (workloads/data/model_sources.csv), by its name.
void add_model_limits(const std::string& model, const DataDirectory& data, std::vector<std::string>& notes);

}  // namespace orrery::driver
