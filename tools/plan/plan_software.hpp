#pragma once
// What software of training can run: `orrery plan --engine NAME` tries no other plans.
//
// One row of the table each, from what its documentation or code offers. Kernels and overheads stay those of the scenario's `software`.

#include "workloads/training/plan/spec.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::plan {

struct PlanSoftware {
    const char* name;
    const char* what;                         ///< that it runs, for the summary of a search
    std::vector<std::string_view> schedules;  ///< of pipelines of two stages or more
    std::vector<ContextExchange> exchanges;   ///< of context groups; empty: it has none
    std::vector<Recompute> recompute;
    bool tensor = true;            ///< it cuts layers over ranks
    bool experts = true;           ///< it spreads experts over ranks
    bool sequence_always = false;  ///< tensor groups always cut the sequence between products
    /// ZeRO stages that it offers, of a plan whose other degrees are set.
    bool (*shards)(const PlanSpec& plan);

    /// Whether it has the plan's degrees, exchange of context groups, recomputation and sequence parallelism.
    [[nodiscard]] bool divides(const PlanSpec& plan) const;
    /// Whether it has the plan's schedule and ZeRO stage.
    [[nodiscard]] bool orders(const PlanSpec& plan) const;
};

[[nodiscard]] const std::vector<PlanSoftware>& plan_software_table();
/// Throws ConfigError with the nearest name.
[[nodiscard]] const PlanSoftware& plan_software(const std::string& name);

}  // namespace orrery::plan
