#pragma once
// Baselines: a scenario, the metrics expected of it with tolerances, and the inputs they were recorded with.
//
//   orrery-baseline: 1
//   scenario: ../scenarios/training/gpt3-175b-1024xA100.yaml     (relative to the baseline)
//   set: [plan.tensor=8]                                         (optional)
//   reason: why the expected values are what they are
//   metrics: {iteration_time_s: {value: 31.1, tolerance: 1 %}}
//   inputs: {...}                                                (written by --update)

#include "tools/check/inputs.hpp"
#include "tools/driver/model_cache.hpp"

#include <optional>
#include <string>
#include <vector>

namespace orrery::check {

struct ExpectedMetric {
    std::string name;
    double value = 0;
    double tolerance = 0.01;  ///< relative
    std::string better;       ///< lower, higher or neither; empty: as the metric is (sim/record/metric_table.hpp)
};

struct Baseline {
    std::string path;
    std::string scenario;  ///< as written
    std::vector<std::string> overrides;
    std::string reason;
    std::vector<ExpectedMetric> metrics;
    std::map<std::string, std::string> inputs;

    [[nodiscard]] std::string scenario_path() const;
};

/// Throws ConfigError with every error of the file.
[[nodiscard]] Baseline load_baseline(const std::string& path);
[[nodiscard]] std::string baseline_text(const Baseline& baseline);
/// JSON Schema of a baseline's file.
[[nodiscard]] std::string baseline_schema();

enum class Verdict { same, moved, improved, regressed, missing, unmeasured };

struct MetricOutcome {
    ExpectedMetric expected;
    double now = 0;
    double change = 0;  ///< relative
    Verdict verdict = Verdict::same;

    /// Whether there is a value of now.
    [[nodiscard]] bool known() const { return verdict != Verdict::missing && verdict != Verdict::unmeasured; }
    [[nodiscard]] std::string now_text() const;     ///< "-" where it is not known
    [[nodiscard]] std::string change_text() const;  ///< such as "+1.2 %"
};

/// A changed input and, where it could be put back alone, how much of the move of the first failed metric it makes.
struct ChangeCause {
    ChangedInput input;
    std::string metric;                  ///< the first that failed, or moved most where none did
    std::optional<double> contribution;  ///< relative change of the metric that reverting it takes away
};

struct BaselineOutcome {
    Baseline baseline;
    std::string error;  ///< why the scenario did not run; empty: it ran
    std::vector<MetricOutcome> metrics;
    std::vector<ExpectationOutcome> expectations;  ///< what the scenario expects of itself, whatever the baseline says
    std::vector<ChangeCause> causes;
    double seconds = 0;
    [[nodiscard]] bool passed() const { return as_pinned() && expectations_met(); }
    /// Whether it ran and no metric of the baseline regressed.
    [[nodiscard]] bool as_pinned() const;
    [[nodiscard]] bool expectations_met() const;
};

/// Runs a baseline's scenario and compares. Throws ConfigError when the baseline or scenario cannot be read.
[[nodiscard]] BaselineOutcome check_baseline(const Baseline& baseline, ModelCache& models);

/// The baseline with the values and inputs of this version.
[[nodiscard]] Baseline updated(Baseline baseline, ModelCache& models, const std::string& reason);

/// JUnit XML: one suite per baseline, one case per metric and per expectation. `command`: which one of the program it is of.
[[nodiscard]] std::string junit_xml(const std::vector<BaselineOutcome>& outcomes, const std::string& command = "check");
/// A table in Markdown, as GitHub shows in the summary of a job.
[[nodiscard]] std::string markdown_summary(const std::vector<BaselineOutcome>& outcomes);
[[nodiscard]] std::string verdict_name(Verdict verdict);
/// What a failure without a changed input comes from; empty where there is none.
[[nodiscard]] std::string why_without_cause(const BaselineOutcome& outcome);
/// "ttft_s.p99: 3, expected < 2 s"
[[nodiscard]] std::string expectation_line(const ExpectationOutcome& outcome);
/// One line for people.
[[nodiscard]] std::string cause_text(const ChangeCause& cause);

}  // namespace orrery::check
