#pragma once
// Numbers of labels: what tasks are is said once for all that are the same.
//
// How it is fast: labels lie in the list that they end up in, and a table of their numbers, at most half full, is looked through from
// the place that a hash says.

#include "workloads/training/lowering/lower.hpp"

#include <cstdint>
#include <vector>

namespace orrery::training {

class LabelTable {
  public:
    /// The number of a label in the list, which it joins if it is not there. Precondition: nobody else changes the list.
    [[nodiscard]] std::uint32_t number_of(const TaskLabel& label, std::vector<TaskLabel>& labels);

  private:
    [[nodiscard]] std::size_t place_of(const TaskLabel& label, const std::vector<TaskLabel>& labels) const;

    static constexpr std::uint32_t kFree = 0xFFFFFFFFU;
    std::vector<std::uint32_t> numbers_;  ///< a power of two of them
};

}  // namespace orrery::training
