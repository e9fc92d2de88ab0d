#pragma once
// Named, seeded random streams that give the same numbers on every platform.
//
// A stream is named after what draws from it ("faults/gpu", "traffic"), so adding a draw in one place leaves all
// others as they were. The generator is xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
// generators", 2021) seeded through SplitMix64; the distributions are our own, because the standard's differ between
// libraries.

#include "sim/base/namespaces.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace orrery::base {

/// SplitMix64's output function: a bijective mix of 64 bits, also used for hashing flows to paths.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
}

/// FNV-1a over the bytes of `text`.
[[nodiscard]] std::uint64_t hash64(std::string_view text);

class RandomStream {
  public:
    RandomStream(std::uint64_t seed, std::string_view name);

    [[nodiscard]] std::uint64_t next();
    /// Uniform in [0, 1), 53 bits.
    [[nodiscard]] double uniform();
    /// Uniform in [0, bound), without modulo bias. `bound` must be positive.
    [[nodiscard]] std::uint64_t below(std::uint64_t bound);
    /// Exponential with the given mean.
    [[nodiscard]] double exponential(double mean);
    /// Normal with mean 0 and standard deviation 1 (polar method).
    [[nodiscard]] double normal();
    /// Fisher-Yates.
    void shuffle(std::vector<std::uint32_t>& items);

  private:
    std::array<std::uint64_t, 4> state_;
};

}  // namespace orrery::base
