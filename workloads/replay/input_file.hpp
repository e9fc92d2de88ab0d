#pragma once
// Whole files as text, with errors that name them.

#include <string>

namespace orrery {

/// The bytes of a file, unpacked where it is gzip. Throws ConfigError when it cannot be read, is larger than 4 GiB, packed or
/// not, or when the gzip is damaged or cut off.
[[nodiscard]] std::string read_input(const std::string& path);
/// Unpacks the bytes of the gzip file `name`; errors as above.
[[nodiscard]] std::string inflate_gzip(const std::string& bytes, const std::string& name);

}  // namespace orrery
