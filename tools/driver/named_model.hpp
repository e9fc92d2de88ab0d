#pragma once
// What presets leave out of the models of scenarios.

#include "sim/config/data_directory.hpp"

#include <string>
#include <vector>

namespace orrery::inline driver {

/// Adds what the description of a model leaves out (workloads/data/model_sources.csv), by its name.
void add_model_limits(const std::string& model, const DataDirectory& data, std::vector<std::string>& notes);

}  // namespace orrery::inline driver
