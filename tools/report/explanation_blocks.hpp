#pragma once
// What an explanation says, as blocks of a report: first what limits the run, then where the time went.

#include "tools/explain/explain.hpp"
#include "tools/report/page.hpp"

namespace orrery::report {

/// A JSON array of blocks.
[[nodiscard]] std::string explanation_blocks(const Explanation& why);

}  // namespace orrery::report
