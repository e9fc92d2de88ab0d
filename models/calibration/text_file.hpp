#pragma once
// Whole text files, plain or compressed: what the readers of traces and profiles read.

#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// The text of a file; `.xz` is decompressed. Throws ConfigError when it cannot be read, is truncated, is not what its
/// name says, or holds more than `most` bytes of text (bombs).
[[nodiscard]] std::string read_text_file(const std::string& path, std::size_t most = std::size_t{1} << 30U);
/// Decompresses xz data; `name` is what errors call it.
[[nodiscard]] std::string decompress_xz(std::string_view data, const std::string& name, std::size_t most);

}  // namespace orrery
