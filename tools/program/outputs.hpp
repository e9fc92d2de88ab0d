#pragma once
// What a command line writes is none of what it reads, and nothing twice: looked at before anything runs.

#include "tools/program/command_line.hpp"
#include "tools/program/commands.hpp"

namespace orrery::inline program {

/// Throws ConfigError when a file that the command line names as an output is one that it names as an input, one of `inputs`
/// (which the inputs name in turn), another output, or cannot be written. Files are compared by what they are, so that links
/// and different spellings of a path do not help.
void check_outputs(const CommandLine& line, const std::vector<std::string>& inputs = {});

}  // namespace orrery::inline program
