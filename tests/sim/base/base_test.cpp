#include "sim/base/error.hpp"
#include "sim/base/huge_pages.hpp"
#include "sim/base/math.hpp"
#include "sim/base/processors.hpp"
#include "sim/base/random.hpp"
#include "sim/base/time.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

using namespace orrery;

TEST_CASE("time rounds seconds to the nearest picosecond and refuses overflow") {
    CHECK(SimTime::from_seconds(1e-12).ps() == 1);
    CHECK(SimTime::from_seconds(1.4e-12).ps() == 1);
    CHECK(SimTime::from_seconds(1.6e-12).ps() == 2);
    CHECK(SimTime::from_seconds(2.5).ps() == 2'500'000'000'000);
    CHECK_THROWS_AS((void)SimTime::from_seconds(1e7), InfeasibleError);
    CHECK_THROWS_AS((void)SimTime::from_seconds(std::nan("")), InfeasibleError);
    CHECK_THROWS_AS((void)(SimTime::max() + SimTime::from_ps(1)), InfeasibleError);
    CHECK_THROWS_AS((void)(SimTime::from_ps(INT64_MIN) - SimTime::from_ps(1)), InfeasibleError);
    CHECK_THROWS_AS((void)(SimTime::max() * 2), InfeasibleError);
}

TEST_CASE("pinned exp, log and pow agree with libm to a few units in the last place") {
    RandomStream random(1, "math");
    for (int i = 0; i < 20000; ++i) {
        const double x = 200 * random.uniform() - 100;
        CHECK(exp_pinned(x) == doctest::Approx(std::exp(x)).epsilon(1e-14));
        const double y = std::exp(x);
        CHECK(std::abs(log_pinned(y) - std::log(y)) <= 4e-16 * std::max(1.0, std::abs(x)));
    }
    CHECK(log_pinned(1) == 0);
    CHECK(exp_pinned(0) == 1);
    CHECK(pow_pinned(2, 10) == doctest::Approx(1024).epsilon(1e-14));
    CHECK(pow_pinned(0, 2) == 0);
    CHECK(std::isnan(log_pinned(-1)));
    CHECK(std::isinf(exp_pinned(1000)));
    CHECK(exp_pinned(-1000) == 0);
}

TEST_CASE("a random stream depends on its name and seed alone, with known first values") {
    RandomStream a(7, "traffic");
    RandomStream b(7, "traffic");
    RandomStream c(7, "faults");
    RandomStream d(8, "traffic");
    const std::uint64_t first = a.next();
    CHECK(first == b.next());
    CHECK(first != c.next());
    CHECK(first != d.next());
    // Frozen: another value here means that every seeded result of every user has changed.
    CHECK(RandomStream(1, "frozen").next() == 1469943328114640396ULL);
}

TEST_CASE("distributions have the moments they claim") {
    RandomStream random(3, "moments");
    const int n = 200000;
    double sum = 0;
    double normal = 0;
    double normal2 = 0;
    std::set<std::uint64_t> seen;
    for (int i = 0; i < n; ++i) {
        sum += random.exponential(2);
        const double z = random.normal();
        normal += z;
        normal2 += z * z;
        seen.insert(random.below(10));
    }
    CHECK(sum / n == doctest::Approx(2).epsilon(0.02));
    CHECK(std::abs(normal / n) < 0.01);
    CHECK(normal2 / n == doctest::Approx(1).epsilon(0.02));
    CHECK(seen.size() == 10);
    CHECK(*seen.rbegin() == 9);
}

TEST_CASE("the nearest name is suggested only when it is near") {
    CHECK(nearest_name("tensr", {"tensor", "pipeline"}) == "tensor");
    CHECK(nearest_name("qwertyuiop", {"tensor", "pipeline"}).empty());
    CHECK(nearest_name("megatron-core", {"maxtext", "megatron-core-2024"}) == "megatron-core-2024");
    CHECK(nearest_name("gbps", {"bps", "kbps", "Gbps"}) == "Gbps");
    CHECK(nearest_name("h100", {"a10", "h100-sxm"}) == "h100-sxm");
    CHECK(nearest_name("me", {"maxtext", "megatron-core-2024"}).empty());
}

TEST_CASE("a diagnostic prints file, line and column") {
    CHECK(Diagnostic{"a.yaml", 3, 5, "bad"}.to_string() == "a.yaml:3:5: error: bad");
}

TEST_CASE("tables of any size keep what is written into them, and give their memory to the next") {
    HugeVector<std::uint64_t> grown;
    std::vector<HugeVector<std::uint64_t>> apart;
    for (std::uint64_t i = 0; i < 400'000; ++i) {
        grown.push_back(i);
        if (std::has_single_bit(i)) {
            apart.emplace_back(i, i);
        }
    }
    for (std::uint64_t i = 0; i < grown.size(); ++i) {
        REQUIRE(grown[i] == i);
    }
    for (const HugeVector<std::uint64_t>& table : apart) {
        CHECK(reinterpret_cast<std::uintptr_t>(table.data()) % 64 == 0);
        CHECK(std::count(table.begin(), table.end(), table.size()) == static_cast<std::ptrdiff_t>(table.size()));
    }
    // Whole pages that serve the next tables, more of them than are kept, and a table that is larger than that.
    for (int round = 0; round < 3; ++round) {
        std::vector<HugeVector<std::uint64_t>> large;
        for (const std::size_t size : {200'000, 500'000, 900'000, 1'000'000, 1'900'000, 3'000'000}) {
            large.emplace_back(size, size);
        }
        for (const HugeVector<std::uint64_t>& table : large) {
            CHECK(std::count(table.begin(), table.end(), table.size()) == static_cast<std::ptrdiff_t>(table.size()));
        }
    }
}

#ifdef __linux__
TEST_CASE("a thread moves to another processor, and may go where it could before") {
    cpu_set_t before;
    CPU_ZERO(&before);
    REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
    std::vector<int> all;
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
        if (CPU_ISSET(processor, &before)) {
            all.push_back(processor);
        }
    }
    CHECK(std::find(all.begin(), all.end(), present_processor()) != all.end());
    bool moved = all.size() == 1;
    for (int i = 0; i < 100 && !moved; ++i) {  // the system may move it back at once
        const int here = present_processor();
        move_to_other_processor({here});
        moved = present_processor() != here;
    }
    CHECK(moved);
    move_to_other_processor(all);
    cpu_set_t after;
    CPU_ZERO(&after);
    REQUIRE(sched_getaffinity(0, sizeof(after), &after) == 0);
    CHECK(CPU_EQUAL(&before, &after));
}
#endif
