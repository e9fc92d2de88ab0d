#pragma once
// Values that a scenario gives and that nothing of it reads.
//
// Claims: a value that differs from its default while what would read it is absent is an error at its line: whoever wrote it believes
// that it counts. Values of the file are let be where something was overridden, on the command line or by an axis: they are of what was there
// before. Settings of packets are no such values: the same scenario runs at every fidelity.
// Validated by tests/tools/hostile_input_test.cpp.

#include "tools/driver/scenario.hpp"

namespace orrery::inline driver {

/// Of models, at `root` as the scenario's or the job's tree.
void refuse_unread_model(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors);
/// Of what clients ask for, and of engines.
void refuse_unread_serving(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors);
/// Of an operation of messages.
void refuse_unread_collective(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors);
/// Of campaigns of faults.
void refuse_unread_faults(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors);

/// What else nothing reads, as notes of the run: what sweeps pass through, and what one key of a fitting whole makes needless.
[[nodiscard]] std::vector<std::string> without_effect(const YamlNode& root, const Scenario& scenario);

/// The same of the plan of a model that runs forward alone.
[[nodiscard]] std::vector<std::string> without_effect_forward(const PlanSpec& plan);

}  // namespace orrery::inline driver
