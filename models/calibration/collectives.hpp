#pragma once
// Fits curves of collectives to measured times: which pieces, where they switch, and what each costs.
//
// Every way to cut the sizes into at most six runs of three points or more is weighed by dynamic programming; a piece minimises the
// squared relative error with no negative term; the number of pieces minimises the Bayesian information criterion over log errors,
// with four parameters a piece. Where a trace names algorithms, no piece spans two names, and a name's run may be shorter. Deterministic.

#include "models/calibration/profiles.hpp"
#include "models/collective_fit.hpp"
#include "sim/base/namespaces.hpp"

#include <string>
#include <vector>

namespace orrery::models {

/// One measured size.
struct CollectivePoint {
    double bytes;    ///< of a rank's buffer
    double seconds;  ///< above 0
    std::string algorithm;
};

/// Fits one curve; `points` ascend in bytes, at least three. Errors are filled in.
[[nodiscard]] CollectiveCurve fit_collective(const std::vector<CollectivePoint>& points);

/// Curves of all rows of a trace that time a collective inside one node: by library (its name up to the version), operation and
/// ranks, rows of the same size merged to their median. A size that took more than twice as long as each of the next two larger
/// ones is left out. Empty when the trace has none.
[[nodiscard]] std::vector<CollectiveCurve> collective_curves(const Trace& trace);

/// Public tables of collectives, and the fabric each belongs to.
struct PublicCollectives {
    const char* fabric;  ///< file name of the fit
    double bandwidth;    ///< B/s of a GPU, one direction
    bool fitted;         ///< false: another collection of the same, for comparison
    PublicProfile profile;
    std::uint32_t most_ranks = 0;  ///< rows of more ranks are known to be wrong; 0: none are
};
[[nodiscard]] const std::vector<PublicCollectives>& public_collectives();

}  // namespace orrery::models
