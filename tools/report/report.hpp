#pragma once
// Reports: one self-contained HTML file, with the numbers of the JSON summary and without a network.
//
// Every report opens with headline numbers and one sentence that says what limits the run. Figures are written into the
// page as data and drawn by its own scripts (Chart.js inlined); timelines and the fabric are SVG.

#include "tools/check/baseline.hpp"
#include "tools/driver/run.hpp"
#include "tools/explain/explain.hpp"
#include "tools/report/svg.hpp"
#include "tools/sweep/table.hpp"

#include <string>
#include <vector>

namespace orrery::report {

/// Of a run; `out` holds its timeline where the scenario has one.
[[nodiscard]] std::string run_report(const Scenario& scenario, const RunOutput& out, const Explanation& why);
/// Of a sweep; `keys`: the columns that were varied, `metrics`: those that were measured.
[[nodiscard]] std::string sweep_report(const std::string& name, const ResultTable& table,
                                       const std::vector<std::string>& keys, const std::vector<std::string>& metrics);
[[nodiscard]] std::string check_report(const std::vector<BaselineOutcome>& outcomes);

/// The layers of a scenario's fabric, from the GPUs upwards, with the use that an explanation found.
[[nodiscard]] std::vector<FabricLayer> fabric_layers(const Scenario& scenario,
                                                     const std::map<std::string, double>& link_use);

}  // namespace orrery::report
