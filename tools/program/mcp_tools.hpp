#pragma once
// The tools and resources that `orrery mcp` offers: each tool is a command of the program with JSON in place of options.
//
// Results are small by default, since an agent pays for every token of them: `detail: full` gives all that the command writes. What
// goes in and out is JSON as text.

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

/// The tools as `tools/list` answers, in order.
[[nodiscard]] std::string mcp_tools();
/// The result of `tools/call`. Errors of a command are results with `isError`, which the model reads. Throws InvalidParams.
[[nodiscard]] std::string call_mcp_tool(const std::string& name, const std::string& arguments, const RunCommand& run);

/// The resources as `resources/list` answers: schemas and the reference of the scenario language.
[[nodiscard]] std::string mcp_resources();
/// The contents of a resource. Throws InvalidParams for an unknown address.
[[nodiscard]] std::string read_mcp_resource(const std::string& uri, const RunCommand& run);

}  // namespace orrery::program
