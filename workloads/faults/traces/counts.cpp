// Numbers of machines over time: as this program writes them, as Bamboo logged spot machines of Google's cloud
// (uclasystem/bamboo@8080929, traces/gcloud) and as PCcheck did (",Time,GPUs" of seconds since 1970).

#include "sim/base/text.hpp"
#include "workloads/faults/traces/format.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::faults {

namespace {

std::string_view after_spaces(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

// Times count from the first line; lines that stand out of order are put in order.
std::vector<TimedFault> from_first(std::vector<MachineCount> counts, const JobShape& shape) {
    std::stable_sort(counts.begin(), counts.end(),
                     [](const MachineCount& a, const MachineCount& b) { return a.at_s < b.at_s; });
    for (std::size_t i = counts.size(); i-- > 0;) {
        counts[i].at_s -= counts[0].at_s;
    }
    return faults_of_counts(counts, shape);
}

std::vector<TimedFault> read_counts(FaultLines& lines, const JobShape& shape) {
    std::vector<MachineCount> counts;
    double last = 0;
    for (const auto& [at, line] : lines.rows()) {
        const auto cells = split(line, ',');
        MachineCount count;
        if (cells.size() != 2) {
            lines.fail(at, "expected time_s,nodes");
        } else if (lines.number(at, cells[0], "time in seconds", count.at_s) &&
                   lines.whole(at, cells[1], "number of nodes", count.machines)) {
            if (count.at_s < last) {
                lines.fail(at, "times go backwards");
            }
            last = count.at_s;
            counts.push_back(count);
        }
    }
    return faults_of_counts(counts, shape);
}

std::vector<TimedFault> read_dated(FaultLines& lines, const JobShape& shape) {
    std::vector<MachineCount> counts;
    for (const auto& [at, line] : lines.lines()) {
        const std::size_t comma = line.rfind(',');
        MachineCount count;
        if (comma == std::string::npos || !parse_instant(std::string_view(line).substr(0, comma), count.at_s)) {
            lines.fail(at, "expected day, time, number of machines, such as 2021-12-11, 11:11:30, 55");
        } else if (lines.whole(at, after_spaces(std::string_view(line).substr(comma + 1)), "number of machines",
                               count.machines)) {
            counts.push_back(count);
        }
    }
    return from_first(std::move(counts), shape);
}

std::vector<TimedFault> read_indexed(FaultLines& lines, const JobShape& shape) {
    std::vector<MachineCount> counts;
    for (const auto& [at, line] : lines.rows()) {
        const auto cells = split(line, ',');
        MachineCount count;
        if (cells.size() != 3) {
            lines.fail(at, "expected number of the line, time in seconds, GPUs");
        } else if (lines.number(at, cells[1], "time in seconds", count.at_s) &&
                   lines.whole(at, cells[2], "number of GPUs", count.machines)) {
            count.machines /= shape.gpus_per_node;
            counts.push_back(count);
        }
    }
    return from_first(std::move(counts), shape);
}

bool is_dated(std::string_view line) {
    double seconds = 0;
    const std::size_t comma = line.rfind(',');
    return comma != std::string_view::npos && parse_instant(line.substr(0, comma), seconds);
}

}  // namespace

extern const FaultTraceFormat kCountsFormat = {"nodes", "time_s,nodes: how many machines there are from a time on",
                                               [](std::string_view line) { return line == "time_s,nodes"; },
                                               read_counts};
extern const FaultTraceFormat kDatedCountsFormat = {
    "dated-nodes", "day, time, machines: spot machines as Bamboo logged them", is_dated, read_dated};
extern const FaultTraceFormat kIndexedCountsFormat = {"gpus", ",Time,GPUs: GPUs over time as PCcheck logged them",
                                                      [](std::string_view line) { return line == ",Time,GPUs"; },
                                                      read_indexed};

}  // namespace orrery::faults
