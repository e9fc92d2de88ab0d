#include "tools/driver/scenario_trial.hpp"

#include "sim/config/yaml_tree.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/run.hpp"

#include <algorithm>

namespace orrery::driver {

std::string trial_problem(const std::string& text, ModelCache& models) {
    YamlNode root = parse_yaml(text, "the scenario");
    if (YamlNode* requests = root.find("requests"); requests != nullptr) {
        std::erase_if(requests->entries, [](const YamlNode::Entry& entry) {
            return entry.key == "clients" || entry.key == "rate" || entry.key == "burstiness";
        });
        apply_override(root, "requests.count=1");
        apply_override(root, "requests.arrivals=at-once");
    }
    try {
        const RunOutput out = run_scenario(read_scenario(root, "trial", models.data()), models, {});
        const auto& metrics = out.summary.metrics;
        const bool refused = std::any_of(metrics.begin(), metrics.end(), [](const Metric& metric) {
            return metric.name == "requests_refused" && metric.value > 0;
        });
        return refused ? "a request is longer than the cache or than 'max_context'" : "";
    } catch (const InfeasibleError& error) {
        return error.what();
    }
}

TrialResult try_scenario(const std::string& path, ModelCache& models) {
    constexpr double kLongest = 10;  // s
    try {
        const Scenario scenario = load_scenario(path, {}, models.data());
        if (expected_cost(scenario).seconds > kLongest) {
            return {Trial::too_long, ""};
        }
        (void)run_scenario(scenario, models, {});
        return {Trial::runs, ""};
    } catch (const Error& error) {
        return {Trial::fails, error.what()};
    }
}

}  // namespace orrery::driver
