#include "tools/driver/model_cache.hpp"
#include "validation/devices/devices.hpp"
#include "validation/statistics.hpp"
#include "validation/validate.hpp"

#include <fmt/format.h>

namespace orrery::validation {

void DeviceScores::score(const std::string& group, const std::string& label, double measured, double predicted) {
    const double error = predicted / measured - 1;
    errors[group].push_back(error);
    comparison.points.push_back({measured, predicted, group, fmt::format("{}: {:+.1f} %", label, 100 * error), {}});
}

void DeviceScores::table(const Terminal& terminal, const std::string& title, const std::vector<std::string>& columns,
                         std::vector<std::vector<std::string>> rows) {
    comparison.tables.push_back({title, columns, std::move(rows)});
    terminal.heading(title);
    terminal.table(columns, comparison.tables.back().rows);
}

Comparison validate_devices(ModelCache& models, const Terminal& terminal, bool points) {
    const DataDirectory& data = models.data();
    DeviceScores scores;
    scores.comparison.suite = "devices";
    scores.comparison.what = "device timings";
    scores.comparison.facets = {"group"};
    scores.print_points = points;
    compare_systolic(data, terminal, scores);
    compare_products(data, terminal, scores);
    compare_pim(data, terminal, scores);
    compare_cent(data, terminal, scores);
    compare_upmem(data, terminal, scores);
    compare_tiers(data, terminal, scores);
    compare_experts(models, terminal, scores);
    compare_training(models, terminal, scores);
    compare_served(models, terminal, scores);
    if (points) {
        std::vector<std::vector<std::string>> listed;
        for (const ScatterPoint& point : scores.comparison.points) {
            listed.push_back({point.group, point.label, fmt::format("{:.5g}", point.measured),
                              fmt::format("{:.5g}", point.predicted)});
        }
        terminal.heading("points");
        terminal.table({"group", "point", "measured", "predicted"}, listed);
    }
    std::vector<std::vector<std::string>> table;
    scores.comparison.scores.push_back({"points", static_cast<double>(scores.comparison.points.size()), ""});
    for (const auto& [group, errors] : scores.errors) {
        const ErrorStatistics s = statistics_of(errors);
        table.push_back({group, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                         fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst)});
        scores.comparison.scores.push_back({"error_" + group, s.mape, "%"});
    }
    scores.table(terminal, "devices by group", {"group", "points", "MAPE", "median bias", "worst"}, std::move(table));
    return std::move(scores.comparison);
}

}  // namespace orrery::validation
