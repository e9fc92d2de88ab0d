#pragma once
// Whether a scenario runs, without the time of its run.

#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"

#include <string>

namespace orrery::driver {

/// Why the scenario of a text cannot run; empty: it can. Of a serving scenario the first request is served, so that what refuses all of
/// them is found: memory, degrees, a length beyond the cache. Throws ConfigError for a text that is no scenario.
[[nodiscard]] std::string trial_problem(const std::string& text, ModelCache& models);

enum class Trial { runs, fails, too_long };
struct TrialResult {
    Trial outcome;
    std::string problem;  ///< where it fails
};
/// Runs the scenario of a file where that takes up to some ten seconds.
[[nodiscard]] TrialResult try_scenario(const std::string& path, ModelCache& models);

}  // namespace orrery::driver
