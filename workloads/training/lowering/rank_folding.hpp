#pragma once
// Whether one rank of a stage can stand for all of them, and what its transfers then demand. Internal to workloads/training.
//
// Claims: transfers that start together, each kind by all ranks of a stage, progress at equal rates where (1) the resources that
// they use can be put into classes of equal capacity, each of which every kind loads alike, and (2) all transfers of a kind use
// resources of the same classes. Rates of max-min fairness are found by raising all until a resource is full: by (1) resources of a
// class fill at once, by (2) transfers of a kind then stop together. One resource of each class, loaded as in the whole run, and one
// transfer of each kind hence give the same rates (an equitable partition: Godsil and Royle, "Algebraic Graph Theory", 9.3).
// Scope: ranks that do the same at the same time apart from this, which lower() checks, on resources that nobody else fills and
// that share fairly: links that serve one transfer after another tell equal ranks apart.
// Validated by tests/workloads/rank_folding_test.cpp and the folded iterations of tests/workloads/training_test.cpp.

#include "sim/network/collective.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace orrery::training {

class RankFolding {
  public:
    /// Starts a kind of transfer, by that of the ranks that stand for others; `set` names it.
    void begin(std::uint32_t set, const GroupTransfer& first);
    /// One more of this kind, of other ranks.
    void add(const GroupTransfer& transfer);

    struct Folded {
        std::uint32_t set;
        std::vector<Demand> demands;
    };
    /// What the first transfer of each kind demands in the place of all; nothing where it is not proven to stand for them.
    [[nodiscard]] std::optional<std::vector<Folded>> fold(const Fabric& fabric) const;

  private:
    struct Kind {
        std::uint32_t set;
        double latency, propagation, bytes;
        std::vector<std::vector<Demand>> transfers;
    };
    /// What a resource carries, by kind.
    using Loads = std::vector<std::pair<std::uint32_t, double>>;

    std::vector<Kind> kinds_;
    bool alike_ = true;  ///< but for their demands
};

}  // namespace orrery::training
