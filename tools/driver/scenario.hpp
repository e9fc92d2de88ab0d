#pragma once
// Scenarios of all kinds: read from YAML, written out and made into what a run is built from.
//
// The one library that the program, the tests and the validation link. It knows every kind of scenario and nothing of
// command lines.

#include "tools/driver/scenario_spec.hpp"

namespace orrery::driver {

/// The files that a scenario names, those of its jobs too, where they are looked for.
[[nodiscard]] std::vector<std::string> files_of(const Scenario& scenario);

/// The same scenario for a file in another directory: what it names relative to its own is named relative to that one.
[[nodiscard]] Scenario seen_from(const std::string& directory, Scenario scenario);

/// Names every field of a scenario of its kind.
void describe(Fields& fields, Scenario& scenario);

/// Reads a scenario tree. Throws ConfigError with every error found.
[[nodiscard]] Scenario read_scenario(const YamlNode& root, const std::string& name, const DataDirectory& data);
/// Loads a file ("-": standard input) and applies `key.path=value` overrides.
[[nodiscard]] Scenario load_scenario(const std::string& path, const std::vector<std::string>& overrides,
                                     const DataDirectory& data);
/// The resolved scenario as JSON, without what is as by default or has no effect: reads back to the same scenario.
[[nodiscard]] std::string resolved_json(Scenario scenario);
/// The same with every default.
[[nodiscard]] std::string complete_json(Scenario scenario);
/// Sixteen hexadecimal digits of what the results of a scenario depend on.
[[nodiscard]] std::string hash_of(const Scenario& scenario);
/// JSON Schema of a scenario of one kind, with the names of the presets and tables in `data`.
[[nodiscard]] std::string scenario_schema(const KindRow& kind, const DataDirectory& data);

/// What the run of a scenario is built from. Reads its file of link events.
[[nodiscard]] RunSettings run_settings(const Scenario& scenario);
/// The scenario's fabric, whose hashes go by its seed. Throws as shape_of does.
[[nodiscard]] Fabric fabric_of(const Scenario& scenario);

/// The data directory of this installation: beside the program (../share/orrery), else the source tree it was built in.
[[nodiscard]] DataDirectory find_data_directory(const std::string& program);

}  // namespace orrery::driver
