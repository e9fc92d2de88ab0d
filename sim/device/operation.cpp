#include "sim/device/operation.hpp"

#include <algorithm>

namespace orrery {

double Attention::density() const {
    // Causal: the diagonal counts whole. With equal lengths this is (n + 1) / 2n.
    double seen = keys;
    if (causal) {
        seen = keys - (queries - 1) / 2;
    }
    if (window > 0 && window < keys) {
        // Each query sees at most `window` keys; the first ones see fewer.
        const double ramp = causal ? std::min(queries, window) : 0;
        const double early = std::max(0.0, queries - std::max(0.0, keys - window));
        const double partial = causal ? std::min(ramp, early) : 0;
        seen = (partial * (partial + 1) / 2 + (queries - partial) * window) / queries;
    }
    return std::max(1.0, seen) / keys;
}

}  // namespace orrery
