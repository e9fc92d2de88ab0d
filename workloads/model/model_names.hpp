#pragma once
// Where presets of models come from, what is published of them, and what their descriptions leave out: workloads/data/model_sources.csv.

#include "sim/config/data_directory.hpp"

#include <string>
#include <vector>

namespace orrery::inline model {

/// Where a preset comes from, and what is published of it.
struct ModelSource {
    std::string preset;
    std::string source;
    double total = 0;          ///< parameters in billions, as published
    double active = 0;         ///< those that a token uses, in billions, as published; 0: not published
    double tolerance = 1;      ///< percent that the described total may differ
    std::string not_modelled;  ///< what the description leaves out; empty: nothing that matters
};

/// All rows of the table. Throws ConfigError for a malformed one.
[[nodiscard]] std::vector<ModelSource> model_sources(const DataDirectory& data);
/// What the description of a preset leaves out; empty for one without a row.
[[nodiscard]] std::string not_modelled(const std::string& preset, const DataDirectory& data);

}  // namespace orrery::inline model
