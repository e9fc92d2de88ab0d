// Feeds any bytes to the readers of traces, fits and profiles: they return or throw ConfigError, nothing else.

#include "models/calibration/collectives.hpp"
#include "models/calibration/profiles.hpp"
#include "models/kernel_fit.hpp"
#include "sim/base/error.hpp"
#include "sim/base/unpacker.hpp"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace orrery;

namespace {

template <class Read>
void survives(const Read& read) {
    try {
        read();
    } catch (const ConfigError&) {
        // what a damaged file should give
    }
}

// Up to 16 MiB of it, in pieces of a size that falls onto every border.
void unpack_all(const std::string& packing, std::string_view in) {
    const auto unpacker = make_unpacker(packing);
    std::string out(4093, '\0');
    try {
        for (std::size_t made = 0; made < std::size_t{1} << 24U;) {
            std::string_view piece = in.substr(0, 61);
            const std::size_t before = piece.size();
            const std::size_t got = unpacker->unpack(piece, out.data(), out.size(), before == in.size());
            in.remove_prefix(before - piece.size());
            made += got;
            if (got == 0 && piece.size() == before) {
                return;
            }
        }
    } catch (const std::runtime_error&) {
        // what damaged data should give
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto& formats = profile_formats();
    const std::size_t which = data[0] % (formats.size() + 6);
    if (which < formats.size()) {
        PublicProfile profile{formats[which].name, "fuzz.csv", "h200-sxm", "fuzz", "none"};
        profile.heads = 32;
        profile.kv_heads = 8;
        profile.head_dim = 128;
        profile.hidden = 4096;
        profile.ffn = 14336;
        profile.vocabulary = 128256;
        survives([&] { (void)parse_profile(profile, text, "fuzz.csv"); });
    } else if (which == formats.size()) {
        survives([&] { (void)collective_curves(parse_trace(text, "fuzz.csv")); });
    } else if (which == formats.size() + 1) {
        survives([&] { (void)parse_fit(text, "fuzz.fit"); });
    } else if (which == formats.size() + 2) {
        survives([&] { (void)parse_collective_fit(text, "fuzz.fit"); });
    } else {
        unpack_all(which == formats.size() + 3 ? "gzip" : which == formats.size() + 4 ? "xz" : "zstd", text);
    }
    return 0;
}
