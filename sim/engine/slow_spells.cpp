#include "sim/engine/slow_spells.hpp"

#include <algorithm>

namespace orrery::engine {

double slowed(std::span<const SlowSpell> spells, double seconds, double kernels, double start) {
    double left = seconds;
    for (double at = start;;) {
        double factor = 1;
        double next = std::numeric_limits<double>::infinity();
        for (const SlowSpell& one : spells) {
            if (one.from <= at && at < one.until) {
                factor = std::min(factor, one.factor);
            }
            for (const double edge : {one.from, one.until}) {
                next = edge > at ? std::min(next, edge) : next;
            }
        }
        const double pace = 1 / (1 - kernels + kernels / factor);
        if (left <= pace * (next - at)) {
            return at + left / pace - start;
        }
        left -= pace * (next - at);
        at = next;
    }
}

}  // namespace orrery::engine
