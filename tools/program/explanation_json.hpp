#pragma once
// An explanation as JSON, for programs and agents: the numbers of `orrery explain`.

#include "tools/driver/scenario.hpp"
#include "tools/explain/explain.hpp"

#include <string>

namespace orrery::program {

/// One object: `verdict`, `metric`, `seconds`, `critical_path`, `bounds`, `what_ifs` and, where the kind has them, `kernels`,
/// `transfers`, `requests`, `iterations`, `last_message`, `goodput`; `values` is every value of the scenario with its source.
[[nodiscard]] std::string explanation_json(const Scenario& scenario, const Explanation& why);

}  // namespace orrery::program
