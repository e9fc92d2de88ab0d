#pragma once
// Equal links by one name.

#include <string>

namespace orrery::inline network {

/// "NIC out 17" -> "NIC out", of a name as Fabric::resource_name gives it.
[[nodiscard]] std::string kind_of_resource(std::string name);

}  // namespace orrery::inline network
