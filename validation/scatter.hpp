#pragma once
// Predicted against measured on logarithmic axes, as SVG.

#include "sim/base/namespaces.hpp"

#include <string>
#include <vector>

namespace orrery::validation {

struct ScatterPoint {
    double measured;   ///< s
    double predicted;  ///< s
    std::string group;
    std::string label;                ///< shown when the pointer rests on it
    std::vector<std::string> facets;  ///< values of Comparison::facets, the group excepted
};

/// A table of figures beside the points, as text; `columns` say the units.
struct ComparisonTable {
    std::string title;
    std::vector<std::string> columns;
    std::vector<std::vector<std::string>> rows;
};

/// A number that a suite is judged by; validation/thresholds.yaml has its limit.
struct Score {
    std::string name;
    double value = 0;
    std::string unit;  ///< "%", or empty
};

/// What a suite has compared, for reports.
struct Comparison {
    std::string suite;
    std::string what;                 ///< what a point is: "training iterations"
    std::string note;                 ///< what a reader has to know about the points
    std::string first;                ///< what to say before the errors of the points
    std::vector<std::string> facets;  ///< by what points differ: the first is their group
    std::vector<ScatterPoint> points;
    std::vector<ComparisonTable> tables;
    std::vector<Score> scores = {};
};

/// A self-contained picture with the diagonal, a band of 10 % on each side and a legend of groups.
[[nodiscard]] std::string scatter_svg(const std::string& title, const std::vector<ScatterPoint>& points);

}  // namespace orrery::validation
