// What a cache of equal items keeps, against closed forms under independent references.

#include "sim/device/tier_cache.hpp"
#include "sim/base/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace orrery;

namespace {

// Popularities in proportion to 1 / k^skew.
std::vector<double> zipf(std::size_t count, double skew) {
    std::vector<double> out;
    double sum = 0;
    for (std::size_t k = 1; k <= count; ++k) {
        out.push_back(std::pow(static_cast<double>(k), -skew));
        sum += out.back();
    }
    for (double& one : out) {
        one /= sum;
    }
    return out;
}

// Hit rate of an LRU cache by Che's approximation: an item is there if it was wanted in the last T references, where T is such that
// as many items as there is room for were.
double che(const std::vector<double>& popularity, double room) {
    const auto held = [&](double t) {
        double sum = 0;
        for (const double p : popularity) {
            sum += 1 - std::exp(-p * t);
        }
        return sum;
    };
    double low = 0;
    double high = 1;
    while (held(high) < room) {
        high *= 2;
    }
    for (int i = 0; i < 100; ++i) {
        const double t = (low + high) / 2;
        (held(t) < room ? low : high) = t;
    }
    double hits = 0;
    for (const double p : popularity) {
        hits += p * (1 - std::exp(-p * low));
    }
    return hits;
}

double measured(const std::vector<double>& popularity, std::uint64_t room, Eviction eviction,
                std::uint64_t pinned = 0) {
    TierCache cache({}, eviction);
    for (std::uint64_t key = 0; key < pinned; ++key) {
        (void)cache.publish(key);
    }
    RandomStream random(5, "references");
    const int warm_up = 100'000;
    const int references = 400'000;
    int hits = 0;
    for (int i = 0; i < warm_up + references; ++i) {
        double left = random.uniform();
        std::uint64_t key = 0;
        while (key + 1 < popularity.size() && left >= popularity[key]) {
            left -= popularity[key++];
        }
        std::uint32_t item = cache.find(key);
        if (item != TierCache::kNone) {
            hits += i >= warm_up ? 1 : 0;
            (void)cache.claim(item);
        } else {
            cache.trim(room - cache.pinned() - 1);
            item = cache.publish(key);
        }
        (void)cache.drop(item);
    }
    return static_cast<double>(hits) / references;
}

}  // namespace

TEST_CASE("tier cache: LRU hits as often as Che's approximation says under independent references") {
    for (const double skew : {0.0, 0.6, 0.9, 1.2}) {
        const std::vector<double> popularity = zipf(200, skew);
        for (const std::uint64_t room : {10U, 40U, 120U}) {
            CAPTURE(skew);
            CAPTURE(room);
            CHECK(measured(popularity, room, Eviction::lru) ==
                  doctest::Approx(che(popularity, static_cast<double>(room))).epsilon(0.02));
        }
    }
}

TEST_CASE("tier cache: LFU keeps the most popular items, and so does pinning them") {
    const std::vector<double> popularity = zipf(200, 0.9);
    double most = 0;
    for (std::size_t k = 0; k < 40; ++k) {
        most += popularity[k];
    }
    // One place is taken by whatever was missed last.
    const double last = popularity[39];
    CHECK(measured(popularity, 40, Eviction::lfu) == doctest::Approx(most).epsilon(2 * last / most));
    CHECK(measured(popularity, 40, Eviction::lfu) > 1.1 * measured(popularity, 40, Eviction::lru));
    CHECK(measured(popularity, 41, Eviction::lru, 40) == doctest::Approx(most).epsilon(0.005));
}

TEST_CASE(
    "tier cache: what nobody uses moves down a tier at a time and is counted there, least used or unused longest "
    "first") {
    for (const Eviction eviction : {Eviction::lru, Eviction::lfu}) {
        TierCache cache({1, 0, 2}, eviction);
        const std::uint32_t often = cache.publish(1);
        CHECK(!cache.claim(often));
        CHECK(!cache.drop(often));
        CHECK(cache.drop(often));
        CHECK(cache.drop(cache.publish(2)));
        CHECK(cache.drop(cache.publish(3)));
        CHECK(cache.publish(3) == TierCache::kNone);  // it is there
        cache.trim(1);
        // LRU: 1 first, then 2. LFU: 2 first, then 3, because 1 was used twice.
        const bool lru = eviction == Eviction::lru;
        CHECK(cache.tier(cache.find(1)) == (lru ? 3 : 0));
        CHECK(cache.tier(cache.find(2)) == (lru ? 1 : 3));
        CHECK(cache.tier(cache.find(3)) == (lru ? 0 : 1));
        CHECK(cache.moved(1) == 2);
        CHECK(cache.moved(2) == 0);
        CHECK(cache.moved(3) == 1);
        // A copy below is given up when the first tier gets one.
        CHECK(cache.publish(2) != TierCache::kNone);
        CHECK(cache.tier(cache.find(2)) == 0);
        CHECK(cache.pinned() == 1);
    }
}
