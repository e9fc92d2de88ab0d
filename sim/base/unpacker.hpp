#pragma once
// Decoders of gzip (RFC 1952), xz and Zstandard (RFC 8878), a piece at a time.

#include "sim/base/namespaces.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::base {

class Unpacker {
  public:
    virtual ~Unpacker() = default;
    /// Takes bytes from the front of `in` and writes up to `size` bytes to `out`; gives how many it wrote. `last`: nothing
    /// follows `in`. Throws std::runtime_error with the reason where the data is damaged.
    virtual std::size_t unpack(std::string_view& in, char* out, std::size_t size, bool last) = 0;
    /// Whether what was taken so far is complete.
    [[nodiscard]] virtual bool complete() const = 0;
};

/// "gzip", "xz" or "zstd" by the first bytes of a file (six are enough); empty where it is none of them.
[[nodiscard]] std::string packing_of(std::string_view head);
/// The packing that an extension (".gz", ".xz", ".zst") promises; empty where it promises none.
[[nodiscard]] std::string packing_by_name(std::string_view path);
/// `packing` as packing_of gives it. Throws InternalError without memory.
[[nodiscard]] std::unique_ptr<Unpacker> make_unpacker(const std::string& packing);

}  // namespace orrery::base
