#include "sim/base/input_file.hpp"

#include "sim/base/error.hpp"

#include <unistd.h>

#include <filesystem>

namespace orrery {

void require_input_file(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    const char* problem = nullptr;
    if (status.type() == fs::file_type::not_found) {
        problem = "cannot be read: no such file";
    } else if (status.type() == fs::file_type::none) {
        problem = "cannot be read: no permission, or a link that leads nowhere";
    } else if (fs::is_directory(status)) {
        problem = "cannot be read: this is a folder, not a file";
    } else if (!fs::is_regular_file(status)) {
        problem =
            "cannot be read: a pipe or a device and not a file; where a scenario or sweep is asked for, '-' reads "
            "standard input";
    } else if (access(path.c_str(), R_OK) != 0) {
        problem = "cannot be read: no permission";
    }
    if (problem != nullptr) {
        throw ConfigError({Diagnostic{path, 0, 0, problem}});
    }
}

}  // namespace orrery
