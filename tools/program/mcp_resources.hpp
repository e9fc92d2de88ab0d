#pragma once
// The resources that `orrery mcp` offers: schemas and the reference of the scenario language.

#include "tools/program/command_tools.hpp"

#include <string>

namespace orrery::program {

/// The resources as `resources/list` answers, as JSON.
[[nodiscard]] std::string mcp_resources();
/// The contents of a resource, as JSON. Throws InvalidParams for an unknown address.
[[nodiscard]] std::string read_mcp_resource(const std::string& uri, const RunCommand& run);

}  // namespace orrery::program
