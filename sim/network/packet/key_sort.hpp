#pragma once
// Puts keys in order that no branch could foresee: processors guess every other comparison of such keys wrong, and a wrong guess costs
// more than ten right ones.
//
// Few keys are put where the number of those before them says: each pair is compared once, without a branch. Many are dealt out by
// one byte after another, the last first, but for bytes in which all agree.
// Validated by tests/sim/network/packet_engine_test.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace orrery::inline network::packet {

inline constexpr std::size_t kFewKeys = 64;

/// Copies so many keys, kFewKeys at most, to `to` in order. Keys may be equal.
inline void sort_few(const std::uint64_t* keys, std::size_t count, std::uint64_t* to) {
    std::array<std::size_t, kFewKeys> places;
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t place = i;
        for (std::size_t j = 0; j < i; ++j) {
            const std::size_t after = keys[j] > keys[i] ? 1 : 0;
            places[j] += after;
            place -= after;
        }
        places[i] = place;
    }
    for (std::size_t i = 0; i < count; ++i) {
        to[places[i]] = keys[i];
    }
}

/// The same for any number of keys, which lose their order.
inline void sort_many(std::uint64_t* keys, std::size_t count, std::uint64_t* to) {
    std::uint64_t differ = 0;
    for (std::size_t i = 1; i < count; ++i) {
        differ |= keys[i] ^ keys[0];
    }
    std::uint64_t* from = keys;
    std::uint64_t* other = to;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if ((differ >> shift & 255) == 0) {
            continue;
        }
        std::array<std::size_t, 257> places{};
        for (std::size_t i = 0; i < count; ++i) {
            ++places[(from[i] >> shift & 255) + 1];
        }
        for (std::size_t i = 1; i < 256; ++i) {
            places[i] += places[i - 1];
        }
        for (std::size_t i = 0; i < count; ++i) {
            other[places[from[i] >> shift & 255]++] = from[i];
        }
        std::swap(from, other);
    }
    if (from != to) {
        std::copy(from, from + count, to);
    }
}

}  // namespace orrery::inline network::packet
