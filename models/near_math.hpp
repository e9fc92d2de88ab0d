#pragma once
// exp and log2 to nine digits, for queries that are answered by the million.
//
// Plain IEEE arithmetic like sim/base/math.hpp, so the same bits everywhere; a third of its time, because the residual of a
// kernel is not known to more than three digits anyway.

#include "sim/base/namespaces.hpp"

#include <bit>
#include <cstdint>

namespace orrery::models {

/// Base-2 logarithm of a positive, finite, normal x; error below 1e-9.
[[nodiscard]] inline double near_log2(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    auto exponent = static_cast<std::int64_t>(bits >> 52U) - 1023;
    double mantissa = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);  // in [1, 2)
    if (mantissa > 1.4142135623730951) {
        mantissa *= 0.5;
        ++exponent;
    }
    // 2 / ln 2 * artanh(f), |f| < 0.1716: the next term is below 1e-9.
    const double f = (mantissa - 1) / (mantissa + 1);
    const double g = f * f;
    return static_cast<double>(exponent) +
           2.8853900817779268 * f *
               (1 + g * (1.0 / 3 + g * (1.0 / 5 + g * (1.0 / 7 + g * (1.0 / 9 + g * (1.0 / 11))))));
}

/// e^x for |x| < 700; relative error below 1e-9.
[[nodiscard]] inline double near_exp(double x) {
    const double scaled = x * 1.4426950408889634;
    const auto k = static_cast<std::int64_t>(scaled + (scaled < 0 ? -0.5 : 0.5));
    const double r = (scaled - static_cast<double>(k)) * 0.6931471805599453;  // |r| < 0.35
    const double e =
        1 +
        r * (1 + r * (1.0 / 2 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 +
                                                                    r * (1.0 / 720 + r * (1.0 / 5040 + r / 40320)))))));
    return e * std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52U);
}

}  // namespace orrery::models
