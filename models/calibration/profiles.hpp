#pragma once
// Readers that map public profiles of kernels onto the trace format.
//
// `profile_formats()` lists the layouts: what each maps and how. `public_profiles()` lists the files of the public
// repositories in README.md ("Raw data") that are known to be sound, with their device; defects found in the others are
// listed in validation/compute/README.md. A reader refuses malformed rows with their line and never crashes on any
// input (fuzzed in tests/fuzz/trace_fuzz.cpp).

#include "models/calibration/trace.hpp"
#include "sim/base/namespaces.hpp"

#include <string>
#include <vector>

namespace orrery::models {

/// A file of a public repository.
struct PublicProfile {
    const char* format;  ///< name of its layout, see `profile_formats`
    const char* path;    ///< below the data directory
    const char* device;  ///< preset of models/data/devices
    const char* source;  ///< repository@commit, what ran
    const char* licence;
    /// Dimensions that the file does not carry: "layers.csv" profiles of one model. {heads, kv_heads, hidden, ffn,
    /// vocabulary, tensor}; zeros where the file has its own.
    double heads = 0, kv_heads = 0, head_dim = 0, hidden = 0, ffn = 0, vocabulary = 0, tensor = 1;
    /// Formats to read, separated by blanks, `bf16:kv8` that of latent attention over an 8-bit cache; empty: all.
    const char* only = "";
    /// Experts without a gate, as "hidden x ffn" separated by blanks.
    const char* ungated = "";
    /// Mixtures of experts to leave out, as "hidden x ffn x experts".
    const char* misrouted = "";
    /// A set of kernels of its own that its fits are in, for engines that name it; "": the device's.
    const char* kernel_set = "";
};

struct ProfileFormat {
    const char* name;
    const char* doc;
};

[[nodiscard]] const std::vector<ProfileFormat>& profile_formats();
[[nodiscard]] const std::vector<PublicProfile>& public_profiles();
/// Products held for a second each, beside a logger of power, and the collection that timed the same shapes in bursts.
struct HeldProfile {
    PublicProfile held, burst;
};
/// For checks of the governor: no fit takes what was held.
[[nodiscard]] const std::vector<HeldProfile>& held_profiles();

/// Reads one profile as a trace. Throws ConfigError with every problem found (the first hundred), each with its line.
[[nodiscard]] Trace read_profile(const PublicProfile& profile, const std::string& directory);
/// The same from text; `name` is what errors call it.
[[nodiscard]] Trace parse_profile(const PublicProfile& profile, const std::string& text, const std::string& name);

}  // namespace orrery::models
