// Feeds any bytes to the readers of traces, fits and profiles: they return or throw ConfigError, nothing else.

#include "models/calibration/collectives.hpp"
#include "models/calibration/profiles.hpp"
#include "models/calibration/text_file.hpp"
#include "models/kernel_fit.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto& formats = profile_formats();
    const std::size_t which = data[0] % (formats.size() + 4);
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
        survives([&] { (void)decompress_xz(text, "fuzz.xz", std::size_t{1} << 24U); });
    }
    return 0;
}
