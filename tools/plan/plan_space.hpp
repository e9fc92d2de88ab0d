#pragma once
// The plans of training that `orrery plan` tries; search.hpp says which.
//
// A space of a million plans is listed as families of plans whose passes cost the same, and what the plans of one differ in: the search
// prices the passes of a family once, and a plan takes a few bytes.

#include "tools/driver/scenario.hpp"
#include "tools/plan/plan_software.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/plan/spec.hpp"

#include <vector>

namespace orrery::plan {

class PlanSpace {
  public:
    /// `software`: whose plans to list; null: all.
    explicit PlanSpace(const Scenario& scenario, const PlanSoftware* software = nullptr);

    /// Adds all that fill a cluster of so many nodes, each once. Whether they fit each other and the memory is not looked at.
    void list(std::int64_t nodes);
    /// Adds one more.
    void add(std::int64_t nodes, const PlanSpec& plan);

    [[nodiscard]] std::size_t size() const { return members_.size(); }
    [[nodiscard]] std::int64_t nodes(std::size_t i) const { return families_[family(i)].nodes; }
    [[nodiscard]] PlanSpec plan(std::size_t i) const;
    /// Plans of one family differ in their schedule, chunks, vocabulary, ZeRO stage and in what they offload.
    [[nodiscard]] std::size_t family(std::size_t i) const { return members_[i].family; }

  private:
    class Lister;
    struct Family {
        std::int64_t nodes;
        PlanSpec plan;
    };
    struct Member {
        std::uint32_t family;
        std::uint16_t schedule;  ///< place in schedule_table()
        std::uint16_t chunks;
        std::uint16_t offload;  ///< place in offloads_
        std::uint8_t zero;
        VocabularyParallel vocabulary;
    };

    const Scenario& scenario_;
    const PlanSoftware* software_;
    std::vector<OffloadPlan> offloads_;
    std::vector<Family> families_;
    std::vector<Member> members_;
};

}  // namespace orrery::plan
