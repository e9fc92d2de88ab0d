#include "workloads/serving/planner_spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::serving {

void describe(Fields& fields, PlannerSpec& spec) {
    fields.quantity({"interval", "interval between two looks at schedule, load and replicas that end their role", false,
                     0.001, 1e6},
                    Dimension::time, spec.interval_s);
    fields.quantity({"switch", "time from the end of the old role to the first request of the new one", false, 0, 1e6},
                    Dimension::time, spec.switch_s);
    fields.items({"moves", "replicas for prompts from given times on"}, spec.moves, [](Fields& inner, RoleMove& move) {
        inner.quantity({"at", "time of the move", true, 0, 9e6}, Dimension::time, move.at_s);
        inner.integer({"prefill", "replicas that compute prompts from then on; the others decode", true, 1, 1 << 16},
                      move.prefill);
    });
    fields.number(
        {"prompts", "requests of a prefill replica, on average, above which a decode replica becomes one; 0: never",
         false, 0, 1e6},
        spec.prompts);
    fields.quantity(
        {"cache", "share of the decode replicas' cache in use above which a prefill replica becomes one; 0: never",
         false, 0, 1},
        Dimension::fraction, spec.cache);
}

std::vector<std::string> problems_of(const PlannerSpec& spec, std::int64_t replicas) {
    std::vector<std::string> problems;
    if (!spec.given) {
        return problems;
    }
    if (spec.moves.empty() == !spec.by_load()) {
        problems.emplace_back("'planner' moves replicas by 'moves' or by the load ('prompts', 'cache'): give one");
    }
    if (!std::is_sorted(spec.moves.begin(), spec.moves.end(),
                        [](const RoleMove& a, const RoleMove& b) { return a.at_s < b.at_s; })) {
        problems.emplace_back("'planner.moves' come in the order of their times");
    }
    for (const RoleMove& move : spec.moves) {
        if (move.prefill >= replicas) {
            problems.push_back(fmt::format("'planner.moves' leaves no replica to decode: {} of {} compute prompts",
                                           move.prefill, replicas));
        }
    }
    return problems;
}

}  // namespace orrery::serving
