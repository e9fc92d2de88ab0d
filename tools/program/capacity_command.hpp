#pragma once
// Capacity and plans of serving scenarios, as commands print them.

#include "tools/driver/scenario.hpp"
#include "tools/program/commands.hpp"

namespace orrery::program {

/// `orrery plan` for a serving scenario.
int plan_serving(const CommandLine& line, const Scenario& scenario, const DataDirectory& data);

}  // namespace orrery::program
