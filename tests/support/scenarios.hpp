#pragma once
// Scenarios from text and the models that they share. It includes the whole driver: tests of sim, models and workloads that
// need no scenario do without.

#include "tests/support/support.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/run.hpp"

#include <string>

namespace orrery::test {

/// Models are slow to load and free of state: one cache serves all tests.
inline ModelCache& model_cache() {
    static ModelCache cache(data());
    return cache;
}

/// Reads a scenario from text.
inline Scenario scenario(const std::string& text) {
    return read_scenario(parse_yaml(text, "test.yaml"), "test", data());
}

/// The error text of a scenario that must be refused; empty when it is accepted.
inline std::string refusal(const std::string& text) {
    try {
        (void)scenario(text);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

/// A metric of a scenario that is run.
inline double metric(const Scenario& scenario, const char* name) {
    return run_scenario(scenario, model_cache(), {}).summary.find(name)->value;
}

/// What a scenario that was read is refused with when it is run; empty when it runs.
inline std::string refused(const Scenario& scenario) {
    try {
        (void)run_scenario(scenario, model_cache(), {});
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

/// A training scenario that is run, whether or not it fits the memory.
inline TrainingResult train(const Scenario& scenario) {
    RunOptions options;
    options.check_memory = false;
    return *run_scenario(scenario, model_cache(), options).training;
}

/// A small training scenario that runs; tests change parts of it.
inline constexpr const char* kSmallTraining = R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-a100-80g}
model: {layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}
plan: {tensor: 2, data: 4, global_batch: 8}
software: megatron-lm-2021
)";

}  // namespace orrery::test
