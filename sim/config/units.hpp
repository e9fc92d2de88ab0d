#pragma once
// Units of the configuration language. Bits are not bytes, GiB is not GB, and a quantity without a unit is refused.

#include "sim/base/error.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::config {

enum class Dimension { time, bytes, rate, flops, frequency, power, fraction, number };

/// The unit in which a dimension is held: s, B, B/s, FLOP/s, Hz, W, 1, 1.
[[nodiscard]] const char* base_unit(Dimension dimension);
/// Every unit that a dimension accepts, such as "Gbps" and "GB/s".
[[nodiscard]] std::vector<std::string> unit_names(Dimension dimension);

/// Parses "400 Gbps" into base units. Returns false otherwise, and says why in `problem` and of which kind that is in `code`.
[[nodiscard]] bool parse_quantity(std::string_view text, Dimension dimension, double& value, std::string& problem,
                                  ErrorCode* code = nullptr);
/// Parses a plain decimal number: no octal, no hexadecimal, no infinity, no NaN, no thousands separators.
[[nodiscard]] bool parse_number(std::string_view text, double& value);
/// "2.5e-06 s" in base units with 17 significant digits, so that it reads back exactly.
[[nodiscard]] std::string format_quantity(double value, Dimension dimension);
/// For people, with four digits: "400 GB/s", "80 GiB", "1.5 us", "84.6 min".
[[nodiscard]] std::string pretty_quantity(double value, Dimension dimension);

}  // namespace orrery::config
