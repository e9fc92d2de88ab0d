#pragma once
// exp, log and pow that give the same bits on every machine.
//
// libm picks an implementation by CPU, and its last bit differs between versions; a simulator that promises
// byte-identical output cannot use it on any path to an output. These use argument reduction and polynomials with
// plain IEEE additions and multiplications (the build disables contraction). Relative error below 4e-16 for exp and
// log in the range used here. Square root is exact by IEEE 754, so std::sqrt is fine.

#include "sim/base/namespaces.hpp"

namespace orrery::base {

/// e^x. Overflows to infinity above 709.78, underflows to 0 below -745.
[[nodiscard]] double exp_pinned(double x);
/// Natural logarithm of x > 0; -inf for 0, NaN for negative numbers.
[[nodiscard]] double log_pinned(double x);
/// Base-2 logarithm of x > 0.
[[nodiscard]] double log2_pinned(double x);
/// x^y for x >= 0.
[[nodiscard]] double pow_pinned(double x, double y);

}  // namespace orrery::base
