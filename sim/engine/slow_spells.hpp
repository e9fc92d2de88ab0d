#pragma once
// Ranks whose kernels are slower for a while.
//
// Claims: kernels run at the least of the factors that hold at an instant; what else a task does keeps its pace. A task under way
// when a factor begins or ends changes its pace there.
// Validated by tests/sim/engine/slow_spells_test.cpp.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <limits>
#include <span>

namespace orrery::engine {

struct SlowSpell {
    std::uint32_t rank = 0;
    double factor = 1;  ///< share of the kernels' speed that is left
    double from = 0;    ///< s
    double until = std::numeric_limits<double>::infinity();
};

/// Seconds that a task of `seconds`, of which kernels are a share, takes from `start` on. `spells`: of its rank.
[[nodiscard]] double slowed(std::span<const SlowSpell> spells, double seconds, double kernels, double start);

}  // namespace orrery::engine
