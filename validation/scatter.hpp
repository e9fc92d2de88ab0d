#pragma once
// Predicted against measured on logarithmic axes, as SVG.

#include <string>
#include <vector>

namespace orrery {

struct ScatterPoint {
    double measured;   ///< s
    double predicted;  ///< s
    std::string group;
    std::string label;  ///< shown when the pointer rests on it
};

/// A self-contained picture with the diagonal, a band of 10 % on each side and a legend of groups.
[[nodiscard]] std::string scatter_svg(const std::string& title, const std::vector<ScatterPoint>& points);

}  // namespace orrery
