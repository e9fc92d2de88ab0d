#pragma once
// orrery export megatron: a training scenario as the command line of a Megatron-LM run.

#include "tools/driver/scenario.hpp"

#include <string>

namespace orrery::program {

/// A shell script that starts the run, with arguments as of Megatron-Core 0.15. What it cannot say is found by reading it back
/// (`orrery import megatron-args`), and stands in its comments. Throws ConfigError for a scenario of another kind.
[[nodiscard]] std::string megatron_script(const Scenario& scenario, const DataDirectory& data);

}  // namespace orrery::program
