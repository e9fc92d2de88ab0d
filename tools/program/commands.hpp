#pragma once
// The commands of the program, free of option parsing.

#include "sim/base/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

struct CommandLine {
    std::string program;
    std::string command;
    std::vector<std::string> arguments;
    std::vector<std::string> overrides;
    std::string json, trace, resolved, svg, output;
    std::string color = "auto";
    bool quiet = false;
    bool host = false;
    bool points = false;
    bool fit = false;
};

/// Runs a command; returns the exit code. Throws the errors of sim/base/error.hpp.
int run_command(const CommandLine& line);

}  // namespace orrery
