#include "sim/device/systolic.hpp"

#include <doctest/doctest.h>

namespace orrery {

TEST_CASE("systolic arrays: a product of one tile takes loading, filling, streaming and draining") {
    SystolicArrays array{4, 8, 1, Dataflow::weights, Folds::separate};
    CHECK(systolic_cycles(array, 10, 8, 4) == 4 + (4 + 8 - 2) + 10);
    array.dataflow = Dataflow::inputs;
    CHECK(systolic_cycles(array, 8, 10, 4) == 4 + (4 + 8 - 2) + 10);
    array.dataflow = Dataflow::outputs;
    CHECK(systolic_cycles(array, 4, 8, 10) == (4 + 8 - 2) + 10);
}

TEST_CASE("systolic arrays: folds are whole tiles of the operands that stay, shared by equal arrays") {
    SystolicArrays arrays{128, 128, 1, Dataflow::weights, Folds::separate};
    CHECK(folds_of(arrays, 7, 129, 256) == 4);
    const double one = systolic_cycles(arrays, 64, 1024, 1024);
    CHECK(one == 64 * (2 * 128 + 128 + 64 - 2));
    arrays.count = 4;
    CHECK(systolic_cycles(arrays, 64, 1024, 1024) == one / 4);
    arrays.count = 100;
    CHECK(systolic_cycles(arrays, 64, 1024, 1024) == one / 64);
    CHECK(systolic_cycles(arrays, 64, 1024, 1024, 100) == one);
    CHECK(systolic_cycles(arrays, 0, 1024, 1024) == 0);
}

TEST_CASE("systolic arrays: those that hold the same tile share a long stream, but not a sum") {
    SystolicArrays arrays{128, 128, 4, Dataflow::weights, Folds::streamed};
    CHECK(systolic_cycles(arrays, 8192, 128, 128) == 128 + 8192 / 4 + 254);
    arrays.dataflow = Dataflow::outputs;
    CHECK(systolic_cycles(arrays, 128, 128, 8192) == 8192 + 254);
    arrays.count = 1;
    CHECK(systolic_cycles(arrays, 128, 128, 8192) == 8192 + 254);
}

TEST_CASE("systolic arrays: pruned weights leave as much less of the sum") {
    SystolicArrays array{128, 128, 1, Dataflow::weights, Folds::separate};
    const double dense = systolic_cycles(array, 3025, 96, 512);
    array.density = 0.5;
    CHECK(systolic_cycles(array, 3025, 96, 512) == dense / 2);
    array.dataflow = Dataflow::outputs;
    CHECK(systolic_cycles(array, 128, 128, 512) == 256 + 254);
}

TEST_CASE("systolic arrays: one that can be stretched takes few rows of many columns in fewer tiles") {
    SystolicArrays array{256, 256, 1, Dataflow::outputs, Folds::streamed};
    CHECK(systolic_cycles(array, 1, 4096, 1000) == 16 * 1000 + 510);
    array.stretch = 2;
    CHECK(systolic_cycles(array, 1, 4096, 1000) == 8 * 1000 + 128 + 512 - 2);
    CHECK(systolic_cycles(array, 4096, 1, 1000) == 8 * 1000 + 128 + 512 - 2);
    CHECK(systolic_cycles(array, 256, 256, 1000) == 1000 + 510);
}

TEST_CASE(
    "systolic arrays: the more folds hide from one another, the nearer a long stream is to a product a cycle and "
    "cell") {
    SystolicArrays arrays{128, 128, 1, Dataflow::weights, Folds::separate};
    const double separate = systolic_cycles(arrays, 1e6, 1280, 1280);
    arrays.folds = Folds::preloaded;
    const double preloaded = systolic_cycles(arrays, 1e6, 1280, 1280);
    arrays.folds = Folds::streamed;
    const double streamed = systolic_cycles(arrays, 1e6, 1280, 1280);
    CHECK(streamed < preloaded);
    CHECK(preloaded < separate);
    CHECK(streamed == doctest::Approx(1e6 * 100).epsilon(1e-5));
    // One row of activations: the next weights take longer to load than the row to pass.
    CHECK(systolic_cycles(arrays, 1, 1280, 1280) == 128 + 99 * 128 + 1 + 254);
}

}  // namespace orrery
