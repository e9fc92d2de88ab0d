#pragma once
// The program as a function: what main() calls, and what the Python module and the MCP server call in child processes.

namespace orrery::program {

/// Runs a command line; returns the exit code. Errors are printed, and none is thrown.
int run_program(int argc, char** argv);

}  // namespace orrery::program
