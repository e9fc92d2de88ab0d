#pragma once
// The JSON Schema of a run's summary, as `orrery run --json` writes it: for programs that read summaries, and for editors.
//
// Claims: names, units and meanings of metrics are those of the metric table (sim/record/metric_table.hpp).
// Validated by tests/tools/summary_schema_test.cpp: the summaries of runs of every kind follow it.

#include "sim/base/namespaces.hpp"

#include <string>

namespace orrery::reference {

/// JSON Schema (draft 2020-12), indented by one space, with a last newline.
[[nodiscard]] std::string summary_schema();

}  // namespace orrery::reference
