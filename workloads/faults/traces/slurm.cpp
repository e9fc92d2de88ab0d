// Nodes that Slurm took down or drained: sacctmgr -P show event format=NodeName,TimeStart,TimeEnd,State,Reason. Times count from the
// first; an event without an end ("Unknown") has none. Events of the whole cluster have no node and are left out.

#include "sim/base/text.hpp"
#include "workloads/faults/traces/format.hpp"

#include <algorithm>
#include <limits>

namespace orrery::faults {

namespace {

constexpr const char* kSlurmHeader = "NodeName|TimeStart|TimeEnd|State|Reason";

std::vector<TimedFault> read_slurm(FaultLines& lines, const JobShape& shape) {
    std::vector<Absence> absences;
    double first = std::numeric_limits<double>::infinity();
    for (const auto& [at, line] : lines.rows()) {
        const auto cells = split(line, '|');
        Absence one;
        if (cells.size() < 4) {
            lines.fail(at, std::string("expected ") + kSlurmHeader);
            continue;
        }
        if (cells[0].empty()) {
            continue;
        }
        one.machine = cells[0];
        one.to_s = std::numeric_limits<double>::infinity();
        if (!parse_instant(cells[1], one.from_s) || (cells[2] != "Unknown" && !parse_instant(cells[2], one.to_s))) {
            lines.fail(at, "expected times such as 2026-01-31T12:00:00, and perhaps Unknown for the second");
            continue;
        }
        if (one.to_s < one.from_s) {
            lines.fail(at, "TimeEnd is before TimeStart");
            continue;
        }
        first = std::min(first, one.from_s);
        absences.push_back(one);
    }
    for (Absence& one : absences) {
        one.from_s -= first;
        one.to_s -= first;
    }
    return faults_of_absences(std::move(absences), shape);
}

}  // namespace

extern const FaultTraceFormat kSlurmFormat = {"slurm",
                                              "NodeName|TimeStart|TimeEnd|State|Reason: sacctmgr -P show event",
                                              [](std::string_view line) { return line == kSlurmHeader; }, read_slurm};

}  // namespace orrery::faults
