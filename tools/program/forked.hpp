#pragma once
// A forked child with its standard streams in memory: what a run in this program and one of another program share.

#include "tools/program/invoke.hpp"

#include <functional>
#include <optional>
#include <string>

namespace orrery::program {

/// Descriptors that the child makes its standard input, output and error.
struct ForkedEnds {
    int input, output, errors;
};

/// Forks a child, in a process group of its own, that calls `become`, which does not return. `stop` is asked every 20 ms and whenever
/// the child has written, with what it wrote so far; when it says so, the child and its own children are killed and nothing is returned.
/// An exception of `stop` ends them too. Throws ConfigError when no process can be made.
[[nodiscard]] std::optional<Invocation> run_forked(const std::string& input,
                                                   const std::function<void(const ForkedEnds&)>& become,
                                                   const std::function<bool(const Invocation& so_far)>& stop);

}  // namespace orrery::program
