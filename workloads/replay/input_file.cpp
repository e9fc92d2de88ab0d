#include "workloads/replay/input_file.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

namespace orrery {

namespace {

constexpr std::uintmax_t kMostBytes = 4ULL << 30U;

bool is_gzip(const std::string& bytes) {
    return bytes.size() > 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

}  // namespace

std::string inflate_gzip(const std::string& bytes, const std::string& name) {
    const auto fail = [&](const std::string& problem) -> void { throw ConfigError({Diagnostic{name, 0, 0, problem}}); };
    z_stream stream{};
    constexpr int kGzip = 15 + 16;  // the largest window, and gzip's head and checksum
    if (inflateInit2(&stream, kGzip) != Z_OK) {
        fail("zlib cannot start");
    }
    const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
    std::string out;
    std::vector<char> buffer(1U << 20U);
    std::size_t taken = 0;
    int status = Z_OK;
    while (taken < bytes.size()) {
        // zlib counts in 32 bits; a file of several members is their contents one after another.
        const std::size_t piece = std::min<std::size_t>(bytes.size() - taken, 1U << 30U);
        stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + taken));
        stream.avail_in = static_cast<uInt>(piece);
        do {
            stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
            stream.avail_out = static_cast<uInt>(buffer.size());
            status = inflate(&stream, Z_NO_FLUSH);
            if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
                fail(fmt::format("gzip is damaged after {} bytes: {}", out.size(),
                                 stream.msg == nullptr ? "no reason given" : stream.msg));
            }
            out.append(buffer.data(), buffer.size() - stream.avail_out);
            if (out.size() > kMostBytes) {
                fail("unpacks to more than 4 GiB");
            }
        } while (status == Z_OK && (stream.avail_in > 0 || stream.avail_out == 0));
        taken += piece - stream.avail_in;
        if (status == Z_STREAM_END && taken < bytes.size()) {
            if (bytes[taken] == '\0') {
                break;  // padding of tapes and block devices
            }
            inflateReset(&stream);
        } else if (status != Z_STREAM_END && stream.avail_in > 0) {
            break;
        }
    }
    if (status != Z_STREAM_END) {
        fail(fmt::format("gzip is cut off: {} bytes could be unpacked", out.size()));
    }
    return out;
}

std::string read_input(const std::string& path) {
    std::error_code failed;
    require_input_file(path);
    std::ifstream in(path, std::ios::binary);
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
    if (is_gzip(text)) {
        return inflate_gzip(text, path);
    }
    return text;
}

}  // namespace orrery
