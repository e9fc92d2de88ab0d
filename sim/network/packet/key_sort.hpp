#pragma once
// Puts keys in order that no branch could foresee: processors guess every other comparison of such keys wrong, and a wrong guess costs
// more than ten right ones.
//
// Few keys are put where the number of those before them says, which is counted for eight keys at once, without a branch: as numbers
// between 1 and 2, since those are what every processor compares two at a time. Many are dealt out by one byte after another, the
// last first, but for bytes in which all agree.
// Validated by tests/sim/network/packet_engine_test.cpp.

#include "sim/base/namespaces.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace orrery::network::packet {

inline constexpr std::size_t kFewKeys = 64;

/// Bits of a number between 1 and 2 that are free.
inline constexpr unsigned kNearBits = 52;

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

// Two numbers that are compared at once, and what comes of it: all bits or none.
using TwoNumbers [[gnu::vector_size(16)]] = double;
using TwoCounts [[gnu::vector_size(16)]] = std::int64_t;

// How many of all numbers are less than each of 2 * kPairs, from `own` on.
template <std::size_t kPairs>
[[gnu::always_inline]] inline void count_less(const double* all, std::size_t count, const double* own,
                                              std::int64_t* less) {
    TwoNumbers numbers[kPairs];
    TwoCounts counts[kPairs] = {};
    for (std::size_t pair = 0; pair < kPairs; ++pair) {
        numbers[pair] = TwoNumbers{own[2 * pair], own[2 * pair + 1]};
    }
    for (std::size_t i = 0; i < count; ++i) {
        const TwoNumbers other = {all[i], all[i]};
        for (std::size_t pair = 0; pair < kPairs; ++pair) {
            counts[pair] -= other < numbers[pair];
        }
    }
    for (std::size_t pair = 0; pair < kPairs; ++pair) {
        less[2 * pair] = counts[pair][0];
        less[2 * pair + 1] = counts[pair][1];
    }
}

/// The same for keys, one at least, that differ in their last kNearBits alone. It is fast where no two are equal.
inline void sort_near(const std::uint64_t* keys, std::size_t count, std::uint64_t* to) {
    constexpr std::size_t kAtOnce = 8;
    if (count <= 2) {
        to[0] = std::min(keys[0], keys[count - 1]);
        to[count - 1] = std::max(keys[0], keys[count - 1]);
        return;
    }
    // What lies behind the keys is compared as well, and not read.
    std::array<double, kFewKeys + kAtOnce> numbers;
    std::array<std::int64_t, kFewKeys + kAtOnce> places;
    for (std::size_t i = 0; i < count; ++i) {
        constexpr std::uint64_t kOne = 0x3FF0000000000000U;
        numbers[i] = std::bit_cast<double>((keys[i] & ((1ULL << kNearBits) - 1)) | kOne);
    }
    std::fill_n(numbers.data() + count, kAtOnce, 1.0);
    if (count <= kAtOnce / 2) {
        count_less<kAtOnce / 4>(numbers.data(), count, numbers.data(), places.data());
    } else {
        for (std::size_t i = 0; i < count; i += kAtOnce) {
            count_less<kAtOnce / 2>(numbers.data(), count, numbers.data() + i, places.data() + i);
        }
    }
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
        sum += static_cast<std::size_t>(places[i]);
        to[places[i]] = keys[i];
    }
    if (2 * sum != count * (count - 1)) [[unlikely]] {
        sort_few(keys, count, to);  // equal ones have one place
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

}  // namespace orrery::network::packet
