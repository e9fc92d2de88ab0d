#include "workloads/replay/input_file.hpp"

#include "sim/base/error.hpp"

#include <filesystem>
#include <fstream>

namespace orrery {

std::string read_input(const std::string& path) {
    constexpr std::uintmax_t kMostBytes = 4ULL << 30U;
    std::error_code failed;
    const bool folder = std::filesystem::is_directory(path, failed);
    std::ifstream in(path, std::ios::binary);
    if (folder || !in) {
        throw ConfigError({Diagnostic{path, 0, 0, folder ? "this is a folder, not a file" : "cannot be read"}});
    }
    const std::uintmax_t size = std::filesystem::file_size(path, failed);
    if (!failed && size > kMostBytes) {
        throw ConfigError({Diagnostic{path, 0, 0, "is larger than 4 GiB"}});
    }
    std::string text(failed ? 0 : size, '\0');
    if (failed) {
        text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    } else {
        in.read(text.data(), static_cast<std::streamsize>(size));
        text.resize(static_cast<std::size_t>(in.gcount()));
    }
    return text;
}

}  // namespace orrery
