#pragma once
// Steps of reading that a scenario and a job of one have in common.

#include "tools/driver/kind.hpp"

namespace orrery::driver {

/// Names the key `orrery`.
void describe_version(Fields& fields, bool required);
/// The kind that a tree names; null: none. Throws ConfigError for a sweep.
[[nodiscard]] const KindRow* kind_of(const YamlNode& root);
/// Keeps where the sections of a scenario stand.
void keep_marks(const YamlNode& root, Scenario& scenario);
/// Looks for what a tree says to no effect: an error, or a note of the scenario's runs.
void keep_without_effect(const YamlNode& node, Scenario& scenario, const std::function<void(Fields&)>& describe_own,
                         const std::function<void(Fields&)>& usual, std::vector<Diagnostic>& errors);

}  // namespace orrery::driver
