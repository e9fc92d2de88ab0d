#pragma once
// What a run reports: metrics with units and intervals, a breakdown, notes; and its writers.

#include "sim/base/namespaces.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::record {

/// The value of a metric of which the run measured nothing, such as a latency when no request was answered.
inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// A predicted value. `low` and `high` bound the 90 % interval where the model gives one.
struct Metric {
    std::string name;
    double value = 0;  ///< kNotMeasured where there is none: null in JSON, absent in tables of sweeps
    std::string unit;
    std::optional<double> low;
    std::optional<double> high;

    [[nodiscard]] bool measured() const { return !std::isnan(value); }
    friend bool operator==(const Metric&, const Metric&) = default;
};

/// A metric that the scenario has an expectation of, and whether it was met.
struct ExpectationOutcome {
    Metric metric;
    std::string expected;  ///< such as "< 2 s"
    bool met = false;      ///< never by what was not measured
};

struct Summary {
    std::string scenario;  ///< name of the scenario file, without its folder
    std::string kind;
    std::string hash;  ///< of the resolved scenario
    std::uint64_t seed = 0;
    std::vector<Metric> metrics;
    /// Parts of the headline time in seconds; they add up to it.
    std::vector<std::pair<std::string, double>> breakdown;
    std::vector<std::string> notes;                ///< one that starts with "warning: " is of metrics unfit to act on
    std::vector<ExpectationOutcome> expectations;  ///< in the order of the scenario
    std::uint64_t events = 0;
    // Of the machine that ran it, never compared:
    double wall_time_s = 0;
    double peak_rss_mib = 0;

    /// The value of a metric, or nullptr.
    [[nodiscard]] const Metric* find(const std::string& name) const;
    /// Expectations that were not met.
    [[nodiscard]] std::size_t failed() const;
    void add(const std::string& name, double value, const std::string& unit) {
        metrics.push_back(Metric{name, value, unit, std::nullopt, std::nullopt});
    }
};

/// The summary as JSON. `with_host`: include the `host` object (wall time, memory).
[[nodiscard]] std::string to_json(const Summary& summary, bool with_host);

/// An interval of a rank's stream, for timelines.
struct Span {
    std::string name;
    std::string category;
    std::uint32_t process;  ///< rank
    std::uint32_t thread;   ///< stream
    double start_us;
    double duration_us;
    std::vector<std::pair<const char*, double>> arguments = {};  ///< what a viewer shows of a span that is chosen
};
/// An arrow from the end of one span to the start of another.
struct FlowArrow {
    std::uint32_t from_process, from_thread;
    double from_us;
    std::uint32_t to_process, to_thread;
    double to_us;
};
/// A part of something that goes on beside the spans, such as a request: those with one `id` are drawn in a row.
struct Lifeline {
    std::string name;
    std::string phase;
    std::uint64_t id;
    std::uint32_t process;
    double start_us;
    double duration_us;
};
/// A value of a process from a time on.
struct CounterPoint {
    std::string name;
    std::uint32_t process;
    double at_us;
    double value;
};
struct Timeline {
    std::vector<std::pair<std::uint32_t, std::string>> processes;
    std::vector<std::pair<std::uint32_t, std::string>> threads;  ///< names of streams, the same in every process
    std::vector<Span> spans;
    std::vector<FlowArrow> arrows;
    std::vector<Lifeline> lifelines;
    std::vector<CounterPoint> counters;
};
/// Chrome trace event format, which ui.perfetto.dev opens.
[[nodiscard]] std::string to_chrome_trace(const Timeline& timeline);

/// Writes a file whole or not at all (sim/record/output_file.hpp); "-" is standard output, and devices and pipes are written to.
/// Throws ConfigError when the place cannot be written.
void write_file(const std::string& path, const std::string& text);

}  // namespace orrery::record
