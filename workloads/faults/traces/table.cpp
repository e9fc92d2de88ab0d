#include "workloads/faults/traces/format.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::faults {

extern const FaultTraceFormat kFaultsFormat;
extern const FaultTraceFormat kCountsFormat;
extern const FaultTraceFormat kDatedCountsFormat;
extern const FaultTraceFormat kIndexedCountsFormat;
extern const FaultTraceFormat kChangesFormat;
extern const FaultTraceFormat kSlurmFormat;
extern const FaultTraceFormat kKubernetesFormat;

const std::vector<const FaultTraceFormat*>& fault_trace_formats() {
    static const std::vector<const FaultTraceFormat*> kTable = {
        &kFaultsFormat,  &kCountsFormat, &kDatedCountsFormat, &kIndexedCountsFormat,
        &kChangesFormat, &kSlurmFormat,  &kKubernetesFormat};
    return kTable;
}

std::vector<TimedFault> read_fault_trace(const std::string& path, const JobShape& shape) {
    FaultLines lines(path);
    const std::string& first = lines.lines().front().second;
    for (const FaultTraceFormat* format : fault_trace_formats()) {
        if (format->begins(first)) {
            std::vector<TimedFault> out = format->read(lines, shape);
            lines.finish();
            std::stable_sort(out.begin(), out.end(),
                             [](const TimedFault& a, const TimedFault& b) { return a.at_s < b.at_s; });
            return out;
        }
    }
    std::string known;
    for (const FaultTraceFormat* format : fault_trace_formats()) {
        known += fmt::format("\n    {}: {}", format->name, format->description);
    }
    lines.fail(lines.lines().front().first, "the first line is none of a known format:" + known);
    lines.finish();
    return {};
}

}  // namespace orrery::faults
