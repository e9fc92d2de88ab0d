#pragma once
// `orrery import`: other tools' traces to replay traces.

#include "tools/program/commands.hpp"

namespace orrery {

/// import FORMAT FILE [-o OUT]
int command_import(const CommandLine& line);

}  // namespace orrery
