#pragma once
// A command line in a child process, for callers that live on: the Python module and the MCP server.
//
// The child has its own memory limit, its own record of files read and its own process group, so that a run that is stopped,
// runs out of memory or crashes costs its caller nothing.

#include "sim/base/namespaces.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace orrery::program {

struct Invocation {
    int code = 0;        ///< exit code of the program; 3 where the kernel ended it for memory, 4 where it crashed
    std::string output;  ///< standard output
    std::string errors;  ///< standard error
};

/// Runs `words` (the name of the program first) with `input` as its standard input. `stop` is asked every 20 ms and after every
/// signal; when it says so, the child and its own children are ended and nothing is returned. An exception of `stop` ends
/// them too. Throws ConfigError when no process can be made.
[[nodiscard]] std::optional<Invocation> invoke(const std::vector<std::string>& words, const std::string& input,
                                               const std::function<bool()>& stop);

}  // namespace orrery::program
