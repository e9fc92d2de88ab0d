#pragma once
// Whole files as text, with errors that name them.

#include <string>

namespace orrery {

/// The bytes of a file. Throws ConfigError when it cannot be read or is larger than 4 GiB.
[[nodiscard]] std::string read_input(const std::string& path);

}  // namespace orrery
