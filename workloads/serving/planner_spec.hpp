#pragma once
// What a scenario says of GPUs that move between replicas for prompts and replicas that decode (cluster/planner.hpp).

#include "sim/config/fields.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::serving {

/// From a time on so many replicas compute prompts.
struct RoleMove {
    double at_s = 0;
    std::int64_t prefill = 1;
};

struct PlannerSpec {
    bool given = false;
    double interval_s = 30;       ///< between two looks
    double switch_s = 0;          ///< from the end of the old role to the first request of the new one
    std::vector<RoleMove> moves;  ///< empty: by the load
    double prompts = 0;           ///< requests of a prefill replica above which one more is wanted; 0: never
    double cache = 0;  ///< share of the decode replicas' blocks in use above which one more is wanted; 0: never

    [[nodiscard]] bool by_load() const { return prompts > 0 || cache > 0; }
};
void describe(Fields& fields, PlannerSpec& spec);
/// What does not go together; `replicas`: of both roles. Empty: fine.
[[nodiscard]] std::vector<std::string> problems_of(const PlannerSpec& spec, std::int64_t replicas);

}  // namespace orrery::serving
