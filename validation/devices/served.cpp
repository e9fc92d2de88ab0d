// Served models on NPUs beside measured runs: a setup of validation/devices/served with the changes of a row of served.csv.

#include "sim/base/error.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/run.hpp"
#include "validation/devices/devices.hpp"

#include <fmt/format.h>

#include <sstream>

namespace orrery::validation {

void compare_served(ModelCache& models, const Terminal& terminal, DeviceScores& out) {
    const DataDirectory& data = models.data();
    std::vector<std::vector<std::string>> table;
    for (const FactsRow& row : read_facts_table(data.path("validation/devices/served.csv"))) {
        std::vector<std::string> changes;
        std::istringstream words(row.text("changes"));
        for (std::string word; words >> word;) {
            changes.push_back(word);
        }
        const std::string& setup = row.text("setup");
        const Scenario scenario =
            load_scenario(data.path(fmt::format("validation/devices/served/{}.yaml", setup)), changes, data);
        const Summary summary = run_scenario(scenario, models, {}).summary;
        const Metric* metric = summary.find(row.text("metric"));
        if (metric == nullptr) {
            throw ConfigError(
                {Diagnostic{row.file, row.line, 1, fmt::format("no metric is called '{}'", row.text("metric")),
                            ErrorCode::malformed_trace}});
        }
        const double measured = row.number("measured");
        const bool scored = row.text("use") != "print";
        if (scored) {
            out.score(row.text("use"), row.text("id"), measured, metric->value);
        }
        table.push_back({setup, row.text("id"), row.text("metric"), fmt::format("{:.5g}", measured),
                         fmt::format("{:.5g}", metric->value),
                         fmt::format("{:+.1f} %", 100 * (metric->value / measured - 1)), scored ? "scored" : ""});
    }
    out.table(terminal, "served models on NPUs", {"setup", "run", "metric", "measured", "predicted", "error", ""},
              std::move(table));
}

}  // namespace orrery::validation
