#pragma once
// Predictions against measured runs.

#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/terminal/terminal.hpp"
#include "validation/scatter.hpp"

namespace orrery::validation {

struct TrainingValidation {
    bool points = false;               ///< print every point
    bool fit = false;                  ///< first fit the two constants of each software preset on the declared half
    std::string runs;                  ///< a file of measured runs; empty: those of validation/training
    std::string svg;                   ///< file for a picture of predicted against measured; empty: none
    std::vector<std::string> without;  ///< mechanisms of the model that are switched off
};

/// Scores training runs (validation/training/points.hpp says how they are written) and prints errors by source, software, hardware,
/// scale and subset, the ranking of plans, the coverage of the intervals, and how far the unscored runs are inside the range of what
/// their sources leave open. Returns the scored points, as the others do.
Comparison validate_training(ModelCache& models, const Terminal& terminal, const TrainingValidation& options);

/// Scores the collective model on measured collectives (validation/collectives/*.csv) by system.
/// `data`: the directory of the public profiles, to compare other collections too; empty without.
Comparison validate_collectives(ModelCache& models, const Terminal& terminal, bool points,
                                const std::string& data = {});

/// Adds to it what the exchanges of tokens with experts take against measured ones of expert-parallel libraries
/// (validation/collectives/dispatch*.csv), by system and library, and what is left out.
void validate_dispatch(ModelCache& models, const Terminal& terminal, bool points, Comparison& out);

/// Prints held-back errors of the fitted kernels, measured ceilings, and whole passes from kernels alone. `directory`: of the
/// public profiles, which are then fitted anew; empty: the errors that the committed fits carry.
Comparison validate_compute(const DataDirectory& data, const Terminal& terminal, const std::string& directory,
                            bool points);

/// Prices the rows of a trace of microbenchmarks, those held back first, by kind: bursts as bursts, rows held for seconds under the
/// power limit, layers and steps as sums of their kernels in a mix. `points`: every row too; `kernels`: a file of their profiles, for errors by
/// class of kernel, or empty. Throws ConfigError for a trace with none to price.
void validate_trace(const DataDirectory& data, const Terminal& terminal, const std::string& file,
                    const std::string& kernels, bool points);

/// Compares the models of systolic arrays, of units and memories of devices with simulators and hardware (validation/devices), by
/// group. `points`: print every point.
Comparison validate_devices(ModelCache& models, const Terminal& terminal, bool points);

/// Scores serving runs (validation/serving) and prints errors of TTFT, TPOT and end-to-end time by engine, device and model, and
/// what is left out. With `fit`, first fits the constants of engine software on the declared half. `only`: this engine alone.
Comparison validate_serving(const DataDirectory& data, const Terminal& terminal, bool points, bool fit,
                            const std::string& only);

/// Compares the caches that engines had at their start, and the starts that they refused, with what the model of their memory says
/// (validation/serving/memory.csv), by engine. `points`: print every row.
Comparison validate_engine_memory(const DataDirectory& data, const Terminal& terminal, bool points);

/// Compares the peak memory of training runs, and those that ran out of memory, with what the model of memory says
/// (validation/training/memory.csv and the points beside it), by source. `points`: print every row.
Comparison validate_training_memory(const DataDirectory& data, const Terminal& terminal, bool points);

/// Runs the commands of published reports of serving speeds (validation/serving/reports.csv) as the importers read them, and compares
/// times per token, times to the first token and throughputs by engine and kind of model. `points`: print every row.
Comparison validate_serving_reports(const DataDirectory& data, const Terminal& terminal, bool points);

/// Runs serving with replicas of its own for prompts and for decoding: points whose workers are stated, and those whose recipes give
/// them (validation/serving/disaggregated.csv, recipes.csv). `points`: print each.
Comparison validate_disaggregated(const DataDirectory& data, const Terminal& terminal, bool points);

/// Runs published ladders of fleets behind routers (validation/serving/fleet_arms.csv), each as one run, and compares throughputs,
/// latencies, saturation and the gains of routers. `points`: print every stage.
Comparison validate_fleets(const DataDirectory& data, const Terminal& terminal, bool points);

/// Runs rows of MLPerf Inference (validation/serving/mlperf.csv), one replica of each system, and compares throughputs and latencies by
/// scenario. `points`: print every row.
Comparison validate_mlperf(const DataDirectory& data, const Terminal& terminal, bool points);

/// Runs a serving scenario whose request trace logged latencies (columns ttft_s and e2e_s, as `orrery import otlp` writes them) and
/// compares them request by request and at their quantiles. Throws ConfigError where the run is not of the whole trace in its order.
Comparison validate_logged(ModelCache& models, const Terminal& terminal, const std::string& file);

/// Runs campaigns of published studies (validation/faults) and compares goodput, interruptions and times of checkpoints. `directory`: of
/// the public profiles, to run jobs on logged spot machines too; empty without.
Comparison validate_faults(const DataDirectory& data, const Terminal& terminal, const std::string& directory = {});

/// Runs measured steps of reinforcement learning (validation/rl) and compares their phases, and times of weight transfers. `points`: print
/// every row.
Comparison validate_rl(const DataDirectory& data, const Terminal& terminal, bool points);

/// Prints the constants of the power law of each GPU, fitted on the declared rows of validation/energy/serving.csv.
void fit_power(const DataDirectory& data, const Terminal& terminal);

/// Compares power and energy of serving with measured ones, and time and energy under power limits (validation/energy). `points`: print
/// every point of serving.
Comparison validate_energy(const DataDirectory& data, const Terminal& terminal, bool points);

/// One HTML page of what the suites have compared.
[[nodiscard]] std::string validation_report(const std::vector<Comparison>& comparisons);

}  // namespace orrery::validation
