#pragma once
// Which way each metric is better: one row a metric that a summary can have.

#include <string>
#include <vector>

namespace orrery::inline record {

enum class Better { neither, lower, higher };

struct MetricRow {
    const char* name;  ///< without a quantile
    Better better;
    const char* meaning = "";  ///< where the name does not say it
};

[[nodiscard]] const std::vector<MetricRow>& metric_table();

/// By a metric's name as summaries and tables of sweeps have it: with a quantile behind ("ttft_s.p99"), with its job in front
/// ("train.mfu"), or a part of the time ("breakdown.bubble"). Neither for what is no metric.
[[nodiscard]] Better better_of(const std::string& name);

/// How a metric is defined; empty where its name says it.
[[nodiscard]] std::string meaning_of(const std::string& name);

/// "lower is better", "higher is better" or empty.
[[nodiscard]] std::string better_text(const std::string& name);
/// The name with an arrow to its better side, for heads of tables; as it is where there is none.
[[nodiscard]] std::string with_arrow(const std::string& name);

}  // namespace orrery::inline record
