#pragma once
// How `orrery plan` tries to spread the experts of a layer over the ranks of a stage.
//
// The space: expert degrees that divide the experts, each expert whole or cut over as many ranks as attention is, every dispatch where
// tokens leave their rank, and, where the scenario does not say it, exchanges behind shared experts or not. Capacity, router and
// precisions are as in the scenario.

#include "tools/driver/scenario.hpp"
#include "workloads/training/plan/spec.hpp"

#include <string>
#include <vector>

namespace orrery::plan {

/// Those of ranks that are divided as `plan` says; the scenario's own for a model without experts.
[[nodiscard]] std::vector<ExpertPlan> expert_choices(const Scenario& scenario, const PlanSpec& plan);

/// ", 64 expert ranks, hierarchical dispatch".
[[nodiscard]] std::string describe_experts(const PlanSpec& plan);
/// "plan.expert=64"...
void assign_experts(const PlanSpec& plan, std::vector<std::string>& assignments);

}  // namespace orrery::plan
