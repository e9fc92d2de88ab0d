#include "sim/base/math.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace orrery::base {

namespace {
// ln 2 split so that k * kLn2High is exact for |k| < 2^11 (Cody and Waite, 1980).
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kLog2E = 1.44269504088896338700;
}  // namespace

double exp_pinned(double x) {
    if (std::isnan(x)) {
        return x;
    }
    if (x > 709.782712893384) {
        return std::numeric_limits<double>::infinity();
    }
    if (x < -745.2) {
        return 0;
    }
    const double k = std::floor(x * kLog2E + 0.5);
    const double r = (x - k * kLn2High) - k * kLn2Low;
    // Taylor series of e^r for |r| <= ln2/2; the term r^14/14! is below 5e-18.
    double sum = 1.0;
    for (int n = 13; n >= 1; --n) {
        sum = 1.0 + r * sum / n;
    }
    return std::ldexp(sum, static_cast<int>(k));
}

double log_pinned(double x) {
    if (std::isnan(x) || x < 0) {
        return std::numeric_limits<double>::quiet_NaN();
    }
    if (x == 0) {
        return -std::numeric_limits<double>::infinity();
    }
    if (std::isinf(x)) {
        return x;
    }
    int exponent = 0;
    double mantissa = std::frexp(x, &exponent);  // in [0.5, 1)
    if (mantissa < 0.70710678118654752440) {
        mantissa *= 2;
        --exponent;
    }
    // ln m = 2 artanh(f), f = (m - 1) / (m + 1), |f| < 0.1716: f^23 / 23 is below 1e-19.
    const double f = (mantissa - 1) / (mantissa + 1);
    const double f2 = f * f;
    double sum = 0;
    for (int n = 21; n >= 3; n -= 2) {
        sum = (sum + 1.0 / n) * f2;
    }
    const double ln_mantissa = 2 * f + 2 * f * sum;
    return exponent * kLn2High + (ln_mantissa + exponent * kLn2Low);
}

double log2_pinned(double x) {
    return log_pinned(x) * kLog2E;
}

double pow_pinned(double x, double y) {
    if (y == 0) {
        return 1;
    }
    if (x == 0) {
        return y > 0 ? 0 : std::numeric_limits<double>::infinity();
    }
    return exp_pinned(y * log_pinned(x));
}

}  // namespace orrery::base
