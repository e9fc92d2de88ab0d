#pragma once
// Measured training runs: files of points, each a scenario beside its measured time, and what Orrery predicts for them.
//
// A file (validation/training/*.yaml, recent/*.yaml there, or one of a user's own):
//   subset: NAME        points that are scored together beside the whole; "given" where it is left out
//   points:
//     - id: NAME
//       confidence, dispatcher   of the source, for readers
//       measured: 5.92 s
//       memory: 16.4 GB     peak that the framework allocated on the fullest GPU; may be left out
//       reserved: 77 GiB    peak that its caching allocator reserved there; may be left out
//       unknown: {plan.recompute: [none, full]}   what the source leaves open: such a point has a range and no score
//       scenario: {...}                           of kind training
// Scored points at even positions of their file (first, third, ...) are the declared half that constants are fitted on.

#include "tools/driver/kinds/training.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/terminal/terminal.hpp"
#include "workloads/training/plan/spec.hpp"

#include <string>
#include <vector>

namespace orrery::validation {

struct TrainingPoint {
    std::string id;
    std::string source;  ///< name of its file
    std::string subset;
    std::string hardware;
    std::string family;   ///< model and size: plans of one family compete
    double measured = 0;  ///< s
    double memory = 0;    ///< B allocated, measured; 0: not known
    double reserved = 0;  ///< B reserved, measured; 0: not known
    bool fitted_half = false;
    std::vector<Scenario> variants;  ///< one, or what the source leaves open
    // Results of predict():
    double low = 0, high = 0;                    ///< s; 0: no variant can run
    double interval_low = 0, interval_high = 0;  ///< 90 %, of the last variant
    double parts_spread = 0;                     ///< of log(time), of all but the software
    double allocated = 0;                        ///< B on the fullest GPU, of the last variant, without reserved_memory
    bool refused_by_memory = false;              ///< although it ran

    [[nodiscard]] bool scored() const { return variants.size() == 1; }
    [[nodiscard]] double error() const { return low / measured - 1; }
    [[nodiscard]] const SoftwareSpec& software() const { return variants[0].as<TrainingKind>().software; }
};

/// The points of all files of validation/training and of its folder recent, or those of `file`. Throws ConfigError with all that is wrong in a file.
[[nodiscard]] std::vector<TrainingPoint> load_training_points(const DataDirectory& data, const std::string& file = {});

/// Runs the variants; a range over those that the model says fit, when there are several.
void predict(TrainingPoint& point, ModelCache& models);

/// Fits kernel_slowdown and step_overhead of each software preset on the declared half, prints them and sets them in all points.
void fit_software(std::vector<TrainingPoint>& points, ModelCache& models, const Terminal& terminal);

/// The same of expert_wait, on runs of experts whose x86 host waits for the tokens of each, with the other constants as committed.
void fit_expert_wait(std::vector<TrainingPoint>& experts, ModelCache& models, const Terminal& terminal);

}  // namespace orrery::validation
