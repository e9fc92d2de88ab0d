#pragma once
// Commands of the program with JSON in place of options: the tools of `orrery mcp` and the paths of `orrery serve`.
//
// Results are small by default, since an agent pays for every token of them: `detail: full` gives all that the command writes. What
// goes in and out is JSON as text, in the form of the Model Context Protocol's `tools/list` and `tools/call`.

#include "tools/program/invoke.hpp"

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace orrery::program {

/// Runs a command line as invoke() does, under the time limit and cancellation of a request.
using RunCommand =
    std::function<Invocation(const std::vector<std::string>& words, const std::string& input, double limit_s)>;

/// What a client may not ask: an unknown name, a missing or malformed argument (JSON-RPC's "invalid params").
class InvalidParams : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Who calls: what only programs can use is not offered to agents.
enum class Audience { agents, programs };

/// The tools as `tools/list` answers, in order.
[[nodiscard]] std::string command_tools(Audience audience);
/// The result of `tools/call`. Errors of a command are results with `isError`. Throws InvalidParams.
[[nodiscard]] std::string call_command_tool(Audience audience, const std::string& name, const std::string& arguments,
                                            const RunCommand& run);

}  // namespace orrery::program
