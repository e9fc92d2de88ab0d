#pragma once
// The plans of training that `orrery plan` tries; search.hpp says which.

#include "tools/driver/scenario.hpp"

#include <vector>

namespace orrery::inline planning {

struct Candidate {
    std::int64_t nodes;
    PlanSpec plan;
};

/// Adds all that fill a cluster of so many nodes, each once. Whether they fit each other and the memory is not looked at.
void list_plans(const Scenario& scenario, std::int64_t nodes, std::vector<Candidate>& out);

}  // namespace orrery::inline planning
