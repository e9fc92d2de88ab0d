// Machines that come and go by name: milliseconds, add or remove, name (uclasystem/bamboo@8080929, traces/g4dn-trace.csv).

#include "sim/base/text.hpp"
#include "workloads/faults/traces/format.hpp"

#include <algorithm>

namespace orrery::faults {

namespace {

constexpr double kMillisecond = 1e-3;

std::vector<TimedFault> read_changes(FaultLines& lines, const JobShape& shape) {
    std::vector<MachineCount> counts = {{0, 0}};
    for (const auto& [at, line] : lines.lines()) {
        const auto cells = split(line, ',');
        double time = 0;
        if (cells.size() != 3 || (cells[1] != "add" && cells[1] != "remove")) {
            lines.fail(at, "expected milliseconds, add or remove, name of the machine");
        } else if (lines.number(at, cells[0], "time in milliseconds", time)) {
            const double change = cells[1] == "add" ? 1 : -1;
            if (time * kMillisecond < counts.back().at_s) {
                lines.fail(at, "times go backwards");
            }
            counts.push_back({time * kMillisecond, std::max(0.0, counts.back().machines + change)});
        }
    }
    return faults_of_counts(counts, shape);
}

}  // namespace

extern const FaultTraceFormat kChangesFormat = {
    "changes", "milliseconds,add|remove,name: spot machines that come and go",
    [](std::string_view line) {
        const auto cells = split(line, ',');
        return cells.size() == 3 && (cells[1] == "add" || cells[1] == "remove");
    },
    read_changes};

}  // namespace orrery::faults
