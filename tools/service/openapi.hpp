#pragma once
// The description of the service's interface: OpenAPI 3.1, made from the table of commands.

#include <string>

namespace orrery::service {

/// The document, as JSON.
[[nodiscard]] std::string openapi(const std::string& version);

}  // namespace orrery::service
