#include "models/calibration/text_file.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"

#include <fmt/format.h>
#include <lzma.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

namespace orrery {

std::string decompress_xz(std::string_view data, const std::string& name, std::size_t most) {
    constexpr std::uint64_t kMemory = std::uint64_t{256} << 20U;
    constexpr std::size_t kStep = std::size_t{1} << 20U;
    lzma_stream stream = LZMA_STREAM_INIT;
    if (lzma_stream_decoder(&stream, kMemory, LZMA_CONCATENATED) != LZMA_OK) {
        throw InternalError("no memory for the xz decoder");
    }
    const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> end(&stream, lzma_end);
    stream.next_in = reinterpret_cast<const std::uint8_t*>(data.data());
    stream.avail_in = data.size();
    std::string text;
    lzma_ret result = LZMA_OK;
    while (result == LZMA_OK) {
        const std::size_t held = text.size();
        text.resize(held + kStep);
        stream.next_out = reinterpret_cast<std::uint8_t*>(text.data() + held);
        stream.avail_out = kStep;
        result = lzma_code(&stream, LZMA_FINISH);
        text.resize(held + kStep - stream.avail_out);
        if (text.size() > most) {
            throw ConfigError({Diagnostic{name, 0, 0, fmt::format("holds more than {} MiB of text", most >> 20U)}});
        }
    }
    if (result != LZMA_STREAM_END) {
        throw ConfigError({Diagnostic{name, 0, 0,
                                      fmt::format("is not a whole xz file: broken or truncated near byte {} of {}",
                                                  stream.total_in, data.size())}});
    }
    return text;
}

std::string read_text_file(const std::string& path, std::size_t most) {
    require_input_file(path);
    std::error_code failed;
    const std::uintmax_t size = std::filesystem::file_size(path, failed);
    std::ifstream stream(path, std::ios::binary);
    if (failed || !stream) {
        throw ConfigError({Diagnostic{path, 0, 0, "cannot be read"}});
    }
    if (size > most) {
        throw ConfigError({Diagnostic{path, 0, 0, fmt::format("is larger than {} MiB", most >> 20U)}});
    }
    std::string data((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    return path.ends_with(".xz") ? decompress_xz(data, path, most) : data;
}

}  // namespace orrery
