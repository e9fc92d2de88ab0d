#pragma once
// A run of the program as a child process of the service: confined, in a group of its own, and gone with its caller.

#include "tools/program/invoke.hpp"
#include "tools/service/confine.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace orrery::service {

struct ChildLimits {
    double seconds = 300;             ///< s of wall time
    std::size_t output = 64U << 20U;  ///< B of its standard output; more ends it
};

/// Runs `words` (the path of the program first) in `folder` with `input` as its standard input. `confinement` may be null.
/// `line`: told each line of standard error as it comes. `stop` is asked every 20 ms; where it says so the child is killed and
/// nothing is returned. A child that goes beyond a limit is killed too: its code is 3 and its errors say which limit.
/// Throws ConfigError where no process can be made.
[[nodiscard]] std::optional<program::Invocation> run_child(const std::vector<std::string>& words,
                                                           const std::string& folder, const std::string& input,
                                                           const Confinement* confinement, const ChildLimits& limits,
                                                           const std::function<void(const std::string&)>& line,
                                                           const std::function<bool()>& stop);

}  // namespace orrery::service
