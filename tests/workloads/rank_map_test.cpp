// The order of a plan's ranks against its closed form.

#include "workloads/training/plan/rank_map.hpp"

#include <doctest/doctest.h>

using namespace orrery;

TEST_CASE("ranks: tensor, then context, data and pipeline parallelism, from the innermost on") {
    const RankMap map(4, 2, 3, 5);
    CHECK(map.per_replica() == 8);
    CHECK(map.per_stage() == 24);
    CHECK(map.ranks() == 120);
    std::uint32_t rank = 0;
    for (std::uint32_t stage = 0; stage < 5; ++stage) {
        for (std::uint32_t replica = 0; replica < 3; ++replica) {
            for (std::uint32_t context = 0; context < 2; ++context) {
                for (std::uint32_t tensor = 0; tensor < 4; ++tensor, ++rank) {
                    const RankMap::Place place{stage, replica, map.member(context, tensor)};
                    CHECK(map.rank(place) == rank);
                    CHECK(map.place(rank) == place);
                    CHECK(map.with_replicas(1).rank({stage, 0, place.member}) == stage * 8 + place.member);
                    CHECK(map.replica_by_replica().rank({replica, stage, place.member}) ==
                          (replica * 5 + stage) * 8 + place.member);
                }
            }
        }
    }
}

TEST_CASE("ranks: what is outside the plan has no place, and a plan of no ranks no order") {
    const RankMap map(2, 1, 2, 2);
    CHECK_THROWS_AS((void)map.place(8), const InternalError&);
    CHECK_THROWS_AS((void)map.rank({2, 0, 0}), const InternalError&);
    CHECK_THROWS_AS((void)map.rank({0, 0, 2}), const InternalError&);
    CHECK_THROWS_AS((void)map.member(1, 0), const InternalError&);
    CHECK_THROWS_AS(RankMap(0, 1, 1, 1), const InternalError&);
    CHECK_THROWS_AS(RankMap(1024, 1024, 1'000'000, 1), const InternalError&);
}
