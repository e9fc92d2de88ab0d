#pragma once
// Simulated time: integer picoseconds with checked arithmetic.
//
// 64 bits of picoseconds last 106 days. An overflow is an error and never wraps.

#include "sim/base/error.hpp"

#include <compare>
#include <cstdint>
#include <limits>

namespace orrery::base {

/// A point or a span of simulated time in picoseconds.
class SimTime {
  public:
    constexpr SimTime() = default;

    [[nodiscard]] static constexpr SimTime from_ps(std::int64_t ps) { return SimTime(ps); }
    [[nodiscard]] static constexpr SimTime max() { return SimTime(std::numeric_limits<std::int64_t>::max()); }

    /// Rounds to the nearest picosecond. This is the only place where seconds become picoseconds.
    /// Throws InfeasibleError when the value is not finite or beyond 106 days.
    [[nodiscard]] static SimTime from_seconds(double seconds) {
        const double ps = seconds * 1e12;
        if (!(ps > -9.2e18 && ps < 9.2e18)) {
            throw InfeasibleError("simulated time out of range: " + std::to_string(seconds) + " s (limit 106 days)");
        }
        return SimTime(static_cast<std::int64_t>(ps < 0 ? ps - 0.5 : ps + 0.5));
    }

    [[nodiscard]] constexpr std::int64_t ps() const { return ps_; }
    [[nodiscard]] constexpr double seconds() const { return static_cast<double>(ps_) * 1e-12; }

    friend constexpr auto operator<=>(SimTime, SimTime) = default;

    friend SimTime operator+(SimTime a, SimTime b) {
        std::int64_t sum = 0;
        if (__builtin_add_overflow(a.ps_, b.ps_, &sum)) {
            throw InfeasibleError("simulated time overflow: more than 106 days in one segment");
        }
        return SimTime(sum);
    }
    friend SimTime operator-(SimTime a, SimTime b) {
        std::int64_t difference = 0;
        if (__builtin_sub_overflow(a.ps_, b.ps_, &difference)) {
            throw InfeasibleError("simulated time overflow: more than 106 days in one segment");
        }
        return SimTime(difference);
    }
    friend SimTime operator*(SimTime a, std::int64_t k) {
        std::int64_t product = 0;
        if (__builtin_mul_overflow(a.ps_, k, &product)) {
            throw InfeasibleError("simulated time overflow: more than 106 days in one segment");
        }
        return SimTime(product);
    }
    SimTime& operator+=(SimTime other) { return *this = *this + other; }
    SimTime& operator-=(SimTime other) { return *this = *this - other; }

  private:
    explicit constexpr SimTime(std::int64_t ps) : ps_(ps) {}
    std::int64_t ps_ = 0;
};

}  // namespace orrery::base
