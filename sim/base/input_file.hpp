#pragma once
// Files that are read: plain, or packed as gzip, xz or Zstandard, which their first bytes tell.
//
// They are looked at before they are opened, so that a pipe nobody writes to cannot block, nor a device feed for ever.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <istream>
#include <memory>
#include <string>

namespace orrery::base {

/// Throws ConfigError, with the reason, unless the path is a regular file that can be read. Notes it as read (was_read).
void require_input_file(const std::string& path);
/// The whole of standard input.
[[nodiscard]] std::string read_standard_input();
/// Whether this process has read the file at a path, under whatever name, or reads it as standard input.
[[nodiscard]] bool was_read(const std::string& path);

/// The text of a file, unpacked as it is read. Reading throws ConfigError where packed data is damaged or cut off.
class InputFile final : public std::istream {
  public:
    /// Throws ConfigError when the file cannot be read, or is not packed as its extension says.
    explicit InputFile(const std::string& path);
    ~InputFile() override;
    /// Whether the file is packed.
    [[nodiscard]] bool packed() const;
    /// Bytes of the file as it lies on the disk.
    [[nodiscard]] std::uintmax_t size() const;
    /// Share of these whose text has been given.
    [[nodiscard]] double share_read() const;

  private:
    class Buffer;
    std::unique_ptr<Buffer> buffer_;
};

/// The whole text of a file. Throws ConfigError as InputFile does, and where the text is larger than `most` bytes.
[[nodiscard]] std::string read_input(const std::string& path, std::size_t most = std::size_t{4} << 30U);
/// The bytes of a file as they are, packed or not. Throws ConfigError when it cannot be read.
[[nodiscard]] std::string bytes_of_input(const std::string& path);
/// The first bytes of the text of a file, at most `most`. Throws ConfigError as InputFile does.
[[nodiscard]] std::string start_of_input(const std::string& path, std::size_t most);
/// The last bytes of the text of a file, at most `most`; only what is packed is read from its start.
[[nodiscard]] std::string tail_of_input(const std::string& path, std::size_t most);
/// The path without the extension of a packing.
[[nodiscard]] std::string unpacked_name(const std::string& path);

}  // namespace orrery::base
