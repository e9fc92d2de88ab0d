#pragma once
// Strong quantities: numbers that cannot be mistaken for one another at a module's boundary.

#include "sim/base/namespaces.hpp"

#include <compare>

namespace orrery::base {

/// A double with a unit in its type. Inside formulas use `value()`; between modules pass the quantity.
template <class Tag>
class Quantity {
  public:
    constexpr Quantity() = default;
    explicit constexpr Quantity(double value) : value_(value) {}
    [[nodiscard]] constexpr double value() const { return value_; }

    friend constexpr auto operator<=>(Quantity, Quantity) = default;
    friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
    friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
    friend constexpr Quantity operator*(Quantity a, double k) { return Quantity(a.value_ * k); }
    friend constexpr Quantity operator*(double k, Quantity a) { return Quantity(a.value_ * k); }
    friend constexpr Quantity operator/(Quantity a, double k) { return Quantity(a.value_ / k); }
    friend constexpr double operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }
    constexpr Quantity& operator+=(Quantity other) {
        value_ += other.value_;
        return *this;
    }

  private:
    double value_ = 0;
};

using Bytes = Quantity<struct BytesTag>;                    ///< bytes (never bits)
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;  ///< B/s
using Seconds = Quantity<struct SecondsTag>;                ///< s, for specifications; the clock is SimTime

}  // namespace orrery::base
