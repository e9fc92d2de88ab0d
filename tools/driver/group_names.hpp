#pragma once
// Groups of the cluster that plans and pools name.

#include "tools/driver/scenario.hpp"

namespace orrery::driver {

/// What stands between the commas.
[[nodiscard]] std::vector<std::string> names_in(const std::string& list);
/// `names`, which the value at `path` ("engine", "prefill", "group") gives, are groups of the cluster, each named once.
void check_group_names(const YamlNode& root, const std::vector<const char*>& path,
                       const std::vector<std::string>& names, const Scenario& scenario,
                       std::vector<Diagnostic>& errors);

}  // namespace orrery::driver
