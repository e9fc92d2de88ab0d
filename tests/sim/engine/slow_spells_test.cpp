// Work of ranks that are slow for a while: closed forms.

#include "sim/engine/slow_spells.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace orrery;

TEST_CASE("kernels at a share of their speed take that much longer, and only while it lasts") {
    const std::vector<SlowSpell> half = {{0, 0.5, 2, 6}};
    CHECK(slowed({}, 3, 1, 0) == 3);
    CHECK(slowed(half, 3, 1, 6) == 3);
    CHECK(slowed(half, 1, 1, 0) == 1);
    CHECK(slowed(half, 3, 1, 0) == doctest::Approx(4));    // two at full speed, one at half
    CHECK(slowed(half, 10, 1, 0) == doctest::Approx(12));  // four seconds gave two
    CHECK(slowed(half, 2, 1, 3) == doctest::Approx(3.5));  // three seconds gave one and a half
}

TEST_CASE("what is no kernel keeps its pace, and of several factors the least holds") {
    const std::vector<SlowSpell> spells = {{0, 0.5, 0}, {0, 0.25, 0, 4}};
    CHECK(slowed({spells.data(), 1}, 8, 0.5, 0) == doctest::Approx(12));
    CHECK(slowed(spells, 3, 1, 0) == doctest::Approx(8));  // four seconds gave one, the rest at half
    CHECK(slowed(spells, 3, 0, 0) == 3);
}
