#pragma once
// Two runs side by side: which inputs differ, what each makes, where the time moved, and the first record that differs.

#include "tools/check/inputs.hpp"
#include "tools/driver/model_cache.hpp"

namespace orrery::explain {

struct InputEffect {
    ChangedInput input;
    std::optional<double> seconds;  ///< headline time that this input alone makes, when put back in the second run
};

struct RunDifference {
    std::string metric;
    double first_s = 0, second_s = 0;
    std::vector<InputEffect> inputs;                                 ///< largest effect first
    std::vector<std::tuple<std::string, double, double>> breakdown;  ///< part, first, second
    std::vector<std::tuple<std::string, std::optional<double>, std::optional<double>, std::string>>
        metrics;                              ///< with unit
    std::string first_record, second_record;  ///< the first that differ; both empty when all are equal
    std::size_t equal_records = 0;            ///< before those
};

/// Runs both. Throws ConfigError when they are of different kinds.
[[nodiscard]] RunDifference compare_runs(const Scenario& first, const Scenario& second, ModelCache& models);

}  // namespace orrery::explain
