#pragma once
// Files that are read: looked at before they are opened, so that a pipe nobody writes to cannot block, nor a device feed for ever.

#include <string>

namespace orrery {

/// Throws ConfigError, with the reason, unless the path is a regular file that can be read.
void require_input_file(const std::string& path);

}  // namespace orrery
