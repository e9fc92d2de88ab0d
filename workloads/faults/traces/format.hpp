#pragma once
// Files that faults are read from: one format per file, one row each; the first line tells which it is.

#include "sim/base/error.hpp"
#include "workloads/faults/spec.hpp"

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::faults {

/// The lines of a file and what is wrong with them.
class FaultLines {
  public:
    /// Throws ConfigError where the file cannot be read.
    explicit FaultLines(std::string path);

    [[nodiscard]] const std::vector<std::pair<int, std::string>>& lines() const { return lines_; }
    /// Those behind the header.
    [[nodiscard]] std::span<const std::pair<int, std::string>> rows() const { return std::span(lines_).subspan(1); }
    /// Collects an error, up to fifty: more would not help.
    void fail(int line, const std::string& text);
    /// A number of at least 0; false, with an error, for anything else.
    bool number(int line, std::string_view text, const char* name, double& out);
    bool whole(int line, std::string_view text, const char* name, double& out);
    /// Throws ConfigError with the errors, if there are any.
    void finish() const;

  private:
    std::string path_;
    std::vector<std::pair<int, std::string>> lines_;  ///< number, text; without empty ones
    std::vector<Diagnostic> errors_;
};

struct FaultTraceFormat {
    const char* name;
    const char* description;
    bool (*begins)(std::string_view first_line);
    std::vector<TimedFault> (*read)(FaultLines& lines, const JobShape& shape);
};
[[nodiscard]] const std::vector<const FaultTraceFormat*>& fault_trace_formats();

/// How many machines there are from a time on.
struct MachineCount {
    double at_s = 0;
    double machines = 0;
};
/// Preemptions and returns that follow from counts in order of time: the last places of the job go first, and the last to go come back
/// first. The first count holds from the start.
[[nodiscard]] std::vector<TimedFault> faults_of_counts(const std::vector<MachineCount>& counts, const JobShape& shape);

/// A machine that is away for some time; infinity: for good.
struct Absence {
    std::string machine;
    double from_s = 0, to_s = 0;
};
/// The machines in the order of their names are the places of the job from the first on; what there are more is not in the job.
[[nodiscard]] std::vector<TimedFault> faults_of_absences(std::vector<Absence> absences, const JobShape& shape);

/// Seconds of "2021-12-11 11:11:30", with 'T' or ", " between day and time and perhaps a 'Z', since 1970 in UTC. False: it is no such
/// time.
[[nodiscard]] bool parse_instant(std::string_view text, double& seconds);

}  // namespace orrery::faults
