#pragma once
// Training under power limits: time and energy relative to those at the highest limit.
//
// The law, for each GPU: the work has a part that keeps the units busy, at `busy` watts, and one that does not, at `other`; how much it
// has of each follows from its mean power without a limit. Under a limit the clock of the busy part falls until
// fixed + (busy - fixed) clock^exponent is the limit, and `bound` of that part takes longer in proportion.

#include "sim/base/namespaces.hpp"

#include <array>
#include <string>
#include <vector>

namespace orrery::validation {

struct LimitPoint {
    double limit = 0;      ///< W
    double unlimited = 0;  ///< mean W at the highest limit
    double time = 1;       ///< over that at the highest limit
    double energy = 1;     ///< the same
};

struct LimitLaw {
    static constexpr std::size_t kConstants = 5;
    double busy = 0, other = 0, fixed = 0;  ///< W
    double exponent = 3;
    double bound = 1;  ///< share of the busy part that arithmetic binds

    struct Relative {
        double time, energy;
    };
    [[nodiscard]] Relative at(double limit, double unlimited) const;
};

/// The constants with the least mean absolute error of time and energy, by descent from three starts. `highest`: W.
[[nodiscard]] LimitLaw fit_limit_law(const std::vector<LimitPoint>& points, double highest);

struct LimitSweep {
    std::string gpu;
    double highest = 0;  ///< W
    std::vector<LimitPoint> fitted, scored;
};
/// By GPU. Networks of images and speech are for fitting, BERT is scored.
[[nodiscard]] std::vector<LimitSweep> read_limit_sweeps(const std::string& path);

}  // namespace orrery::validation
