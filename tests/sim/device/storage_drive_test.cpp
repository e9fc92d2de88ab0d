// Attention in drives that hold keys and values, by hand.

#include "sim/device/storage_drive.hpp"

#include <doctest/doctest.h>

using namespace orrery;

namespace {

// Two channels of 100 B/s, pages of 100 B; the link moves 50 B/s.
DriveSpec small() {
    DriveSpec drive;
    drive.drives = 1;
    drive.channels = 2;
    drive.dies = 4;
    drive.capacity.value = 1e6;
    drive.page.value = 100;
    drive.page_read.value = 1;
    drive.page_write.value = 8;
    drive.channel_rate.value = 100;
    drive.compute.value = 1e9;
    drive.link.value = 50;
    return drive;
}

// Four heads of queries, two of keys, of 10 numbers of 2 B; 24 tokens fill 4.8 pages.
constexpr DriveAttention kWork{4, 2, 24, 10, 2};

}  // namespace

TEST_CASE("flash reads whole pages at the rate of its buses or of its dies") {
    DriveSpec drive = small();
    CHECK(drive.read_rate() == 200);  // four dies of a page a second would give 400 B/s a channel
    drive.dies = 1;
    drive.page_read.value = 2;
    CHECK(drive.read_rate() == 100);
    CHECK(small().write_rate() == 100);
    // Keys and values of two heads, five pages each.
    CHECK(pages_read(small(), kWork) == 2 * 2 * 500);
    drive.drives = 2;
    CHECK(pages_read(drive, kWork) == 2 * 1 * 500);
    drive = small();
    drive.selected = 0.5;
    CHECK(pages_read(drive, kWork) == 2 * 2 * 300);  // three of five
    drive.key_orders = 2;
    CHECK(stored(drive, kWork) == 3 * 2 * 500);
}

TEST_CASE("attention in a drive takes the slowest of flash, filter and units, and vectors over the link") {
    DriveSpec drive = small();
    // Four query vectors, two of keys and two of values of 20 B go in, four outputs come back; the first page, then 2,000 B.
    const double vectors = (4 + 2 + 2 + 4) * 20.0 / 50;
    CHECK(attention_in_drive(drive, kWork) == doctest::Approx(vectors + 1 + 2000.0 / 200));
    drive.filter.value = 50;
    CHECK(attention_in_drive(drive, kWork) == doctest::Approx(vectors + 2000.0 / 100));
    // A multiplication and an addition for each number read and query head that shares it.
    drive.compute.value = 100;
    CHECK(attention_in_drive(drive, kWork) == doctest::Approx(vectors + 2 * 2 * 1000.0 / 100));
    CHECK(pages_over_link(drive, kWork) == doctest::Approx(1 + 2000.0 / 50));
}

TEST_CASE("new keys and values are written at the rate of the link or of the flash") {
    DriveSpec drive = small();
    // Ten tokens of two heads: 400 B of keys and as many of values, at 50 B/s of the link.
    CHECK(written(drive, kWork, 10) == doctest::Approx(800.0 / 50));
    drive.link.value = 1e6;
    drive.key_orders = 3;
    CHECK(written(drive, kWork, 10) == doctest::Approx(4 * 400.0 / 100));
}
