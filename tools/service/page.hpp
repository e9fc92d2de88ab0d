#pragma once
// The page of the service: one file, without anything from elsewhere.

#include <string_view>

namespace orrery::service {

[[nodiscard]] std::string_view service_page();

}  // namespace orrery::service
