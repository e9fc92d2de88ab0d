#pragma once
// Equal links by one name.

#include "sim/base/namespaces.hpp"

#include <string>

namespace orrery::network {

/// "NIC out 17" -> "NIC out", of a name as Fabric::resource_name gives it.
[[nodiscard]] std::string kind_of_resource(std::string name);

}  // namespace orrery::network
