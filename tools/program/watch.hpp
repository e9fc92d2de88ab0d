#pragma once
// Running again whenever an input changes.

#include "tools/program/error_codes.hpp"

#include <functional>
#include <string>
#include <vector>

namespace orrery::program {

/// Calls `once`, which returns the files that it read, and again when one of them, or `scenario`, has changed: size, time or
/// identity, looked at five times a second, so that editors which write a file anew are seen as well. What is wrong with an input is
/// printed, and then waits for the next change, of the files that it names too. Ends with the program.
[[noreturn]] void watch(const std::string& scenario, const std::function<std::vector<std::string>()>& once,
                        OutputFormat format, bool quiet);

}  // namespace orrery::program
