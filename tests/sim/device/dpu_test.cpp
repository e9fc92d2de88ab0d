// Copies to small cores beside memory banks, and their launches, by hand.

#include "sim/device/dpu.hpp"

#include <doctest/doctest.h>

using namespace orrery;

namespace {

DpuSpec slow() {
    DpuSpec dpu;
    dpu.per_rank = 4;
    dpu.pipeline = 10;
    dpu.clock.value = 100;
    dpu.core_rate.value = 1;
    dpu.rank_rate.value = 2;
    dpu.total_rate.value = 3;
    dpu.copy.value = 5;
    dpu.copy_per_rank.value = 1;
    dpu.launch.value = 7;
    dpu.launch_per_rank.value = 0.5;
    dpu.dma_read.value = 20;
    dpu.dma_write.value = 10;
    dpu.dma_byte.value = 0.5;
    return dpu;
}

}  // namespace

TEST_CASE("DPU: a copy takes the rate of a core, of a rank or of all ranks, whichever is slowest") {
    CHECK(copy_seconds(slow(), 1, 6) == doctest::Approx(5 + 1 + 6));
    CHECK(copy_seconds(slow(), 4, 6) == doctest::Approx(5 + 1 + 24 / 2.0));
    CHECK(copy_seconds(slow(), 8, 6) == doctest::Approx(5 + 2 + 48 / 3.0));
}

TEST_CASE("DPU: fewer threads than the pipeline is deep leave cycles idle, and a thread waits for its bank") {
    CHECK(launch_seconds(slow(), 4, 1, {50}) == doctest::Approx(7.5 + 10 * 50 / 100.0));
    CHECK(launch_seconds(slow(), 4, 10, {50}) == doctest::Approx(7.5 + 10 * 50 / 100.0));
    CHECK(launch_seconds(slow(), 8, 20, {50}) == doctest::Approx(8 + 20 * 50 / 100.0));
    CHECK(launch_seconds(slow(), 4, 1, {50, 2, 1, 8}) == doctest::Approx(7.5 + (500 + 2 * 24 + 14) / 100.0));
}
