#pragma once
// What a run is expected to give: bounds of its metrics, such as `ttft_s.p99: "< 2 s"` or `mfu: "> 40 %"`.
//
// Metrics whose name ends in _s are times and need a unit of time; shares take a percentage or a number; all others are in the unit
// that their name says and take a number.

#include "sim/config/yaml_tree.hpp"
#include "sim/record/summary.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::record {

struct Expectation {
    enum class Sign : std::uint8_t { below, at_most, above, at_least };
    std::string metric;
    std::string text;  ///< as written
    Sign sign = Sign::below;
    double bound = 0;      ///< in the metric's unit
    bool percent = false;  ///< written as a percentage
    std::string unit;      ///< written behind a plain number; empty: none
    Mark mark;
};

/// Reads the map of a section; maps inside it are names with dots. Adds every error with its place.
[[nodiscard]] std::vector<Expectation> read_expectations(const YamlNode& section, std::vector<Diagnostic>& errors);

/// Holds the expectations against a summary. Throws ConfigError for metrics that it does not have, with the nearest one that it has, and
/// for percentages of what is no share.
[[nodiscard]] std::vector<ExpectationOutcome> judge(const std::vector<Expectation>& expectations,
                                                    const Summary& summary);

}  // namespace orrery::record
