#pragma once
// What the sections of a scenario say together: budgets and limits of power, and what a fabric can do at a fidelity.

#include "tools/driver/scenario_spec.hpp"
#include "workloads/model/model_spec.hpp"

namespace orrery::driver {

/// Where a field stands that is named by its keys from the root on, or the innermost of its sections that is given.
[[nodiscard]] const Mark& mark_of(const YamlNode& root, const std::string& path);
/// What the dimensions of a model say together.
void check_model(const YamlNode& root, const ModelSpec& model, std::vector<Diagnostic>& errors);
/// GPUs keep to their share of a budget as they do to a limit of their own.
void apply_power_budget(const YamlNode& root, Scenario& scenario, std::vector<Diagnostic>& errors);
/// A limit needs the figures of its device, and one that it can keep.
/// `own_mark`: where devices stand that are not those of nodes.
void check_power_limit(Scenario& scenario, const Mark& own_mark, std::vector<Diagnostic>& errors);
/// A fabric simulates the paths that are chosen at the fidelity that is chosen.
void check_topology(const Scenario& scenario, std::vector<Diagnostic>& errors);
/// Threads share networks whose parts act on each other over links alone.
void check_threads(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors);
/// A file that a scenario names at `mark` as `named` and that cannot be read is an error there. False: it cannot.
bool check_file(const Mark& mark, const std::string& named, const std::string& directory,
                std::vector<Diagnostic>& errors);
/// The same of every file that a scenario, `tree`, and its jobs in place name; relative ones start at `directory`.
void check_files(const YamlNode& tree, const std::string& directory, std::vector<Diagnostic>& errors);
/// Whether an error is on the lines of a section or in what --set gave of it, or has no line.
[[nodiscard]] bool names_lines_of(const std::vector<Diagnostic>& errors, const YamlNode& root,
                                  const std::string& section);

}  // namespace orrery::driver
