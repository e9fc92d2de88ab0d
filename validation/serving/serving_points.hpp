#pragma once
// Measured serving runs as scenarios: validation/serving/*.csv with their setups.

#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/terminal/terminal.hpp"
#include "validation/validate.hpp"

#include <string>
#include <vector>

namespace orrery::validation {

struct ServingPoint {
    std::string id;      ///< file and line
    std::string source;  ///< who measured
    std::string engine;
    std::string device;
    std::string model;
    bool dense = true;
    bool fitted_half = false;
    bool per_token = false;    ///< the mean time per output token is over tokens instead of requests
    double output_tokens = 0;  ///< of all requests, where `per_token`
    Scenario scenario;
    double ttft = 0, tpot = 0, e2e = 0;  ///< s, measured; 0: not known
    double tokens_per_s = 0;             ///< output tokens of the whole system, measured; 0: not known
    // Results:
    double predicted_ttft = 0, predicted_tpot = 0, predicted_e2e = 0, predicted_tokens_per_s = 0;
    /// Half-widths of the 90 % interval of log(time) that the run stated.
    double tpot_width = 0, ttft_width = 0, e2e_width = 0;
    std::string problem;  ///< why it could not run
};

/// All points of latencies in the order of their files. Throws ConfigError.
[[nodiscard]] std::vector<ServingPoint> load_serving_points(const DataDirectory& data);
/// Points that are scored apart, none of them for fitting (validation/serving/degrees.csv, latent.csv, borrowed.csv, linear.csv).
[[nodiscard]] std::vector<ServingPoint> load_points_apart(const DataDirectory& data);
/// Points with replicas of their own for prompts and for decoding, none of them for fitting (validation/serving/disaggregated.csv).
[[nodiscard]] std::vector<ServingPoint> load_disaggregated_points(const DataDirectory& data);

/// The same of points whose replicas their recipes give, with and without drafts (validation/serving/recipes.csv).
[[nodiscard]] std::vector<ServingPoint> load_recipe_points(const DataDirectory& data);
/// Points of which only the throughput is known (validation/serving/offline.csv).
[[nodiscard]] std::vector<ServingPoint> load_offline_points(const DataDirectory& data);

/// Runs a point and fills in what it predicts.
void predict(ServingPoint& point, ModelCache& models);
/// Runs those points in two threads.
void predict_all(const std::vector<ServingPoint*>& points, const DataDirectory& data,
                 const std::function<void(double)>& progress);

/// Runs one phase of wide expert parallelism as each row of validation/serving/wide_ep.csv has it, and prints measured and predicted
/// throughput.
[[nodiscard]] std::vector<Score> validate_wide_ep(const DataDirectory& data, const Terminal& terminal);

/// Prints errors of a layer's kernels against summed operators (validation/serving/layers.csv).
void validate_layers(const DataDirectory& data, const Terminal& terminal);

/// Fits the constants of engine software on the declared half and prints them; the points keep the fitted values.
void fit_engines(std::vector<ServingPoint>& points, const DataDirectory& data, const Terminal& terminal,
                 const std::string& only);

}  // namespace orrery::validation
