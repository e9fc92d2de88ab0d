#include "workloads/training/plan/rank_groups.hpp"

namespace orrery::training {

ConcurrentGroups RankGroups::of_replica(const std::vector<Members>& groups) const {
    const std::uint32_t replicas = map_.per_stage() / map_.per_replica();
    std::vector<Members> all;
    for (std::uint32_t i = 0; i < replicas; ++i) {
        const std::uint32_t first = (of_.replica + i) % replicas * map_.per_replica();
        for (const Members& group : groups) {
            Members& own = all.emplace_back(group);
            for (std::uint32_t& rank : own) {
                rank += first;
            }
        }
    }
    return of_stage(all);
}

ConcurrentGroups RankGroups::every(std::int64_t distance, std::int64_t count) const {
    const auto step = static_cast<std::uint32_t>(distance);
    const auto ranks = static_cast<std::uint32_t>(count);
    std::vector<Members> groups;
    for (std::uint32_t first = 0; first < map_.per_replica(); ++first) {
        if (first / step % ranks == 0) {
            Members& group = groups.emplace_back();
            for (std::uint32_t i = 0; i < ranks; ++i) {
                group.push_back(first + i * step);
            }
        }
    }
    return of_replica(groups);
}

ConcurrentGroups RankGroups::of_stage(const std::vector<Members>& groups) const {
    const std::uint32_t stages = map_.ranks() / map_.per_stage();
    const std::uint32_t wanted = switch_links_matter(*fabric_, paths_) ? stages : 1;
    std::vector<ConcurrentGroups::Group> out;
    for (std::uint32_t i = 0; i < wanted; ++i) {
        const std::uint32_t first = (of_.stage + i) % stages * map_.per_stage();
        for (const Members& group : groups) {
            ConcurrentGroups::Group& own = out.emplace_back();
            for (const std::uint32_t rank : group) {
                own.push_back(gpu(first + rank));
            }
        }
    }
    return {*fabric_, paths_, std::move(out)};
}

}  // namespace orrery::training
