#pragma once
// What each metric means: one row per metric that a summary can have. `orrery list metrics`, `orrery help METRIC`, the reference and the
// cards of reports come from it.

#include "sim/base/namespaces.hpp"

#include <string>
#include <vector>

namespace orrery::record {

enum class Better { neither, lower, higher };

struct MetricRow {
    const char* name;  ///< without a quantile
    const char* unit;  ///< as in the JSON summary; "1": a share or a count
    Better better;
    const char* meaning;  ///< one sentence
};

[[nodiscard]] const std::vector<MetricRow>& metric_table();

/// By a metric's name as summaries and tables of sweeps have it: with a quantile behind ("ttft_s.p99"), with its job in front
/// ("train.mfu"), or a part of the time ("breakdown.bubble"). Neither for what is no metric.
[[nodiscard]] Better better_of(const std::string& name);

/// The row of a metric by its name as better_of() takes it; null for what is no metric.
[[nodiscard]] const MetricRow* row_of_metric(const std::string& name);

/// "lower is better", "higher is better" or empty.
[[nodiscard]] std::string better_text(const std::string& name);
/// The name with an arrow to its better side, for heads of tables; as it is where there is none.
[[nodiscard]] std::string with_arrow(const std::string& name);

}  // namespace orrery::record
