// UPMEM: copies from the host and launches, as measured.

#include "sim/device/dpu.hpp"
#include "sim/record/facts_table.hpp"
#include "validation/devices/devices.hpp"
#include "validation/statistics.hpp"

#include <fmt/format.h>

namespace orrery::validation {

namespace {

DpuSpec read_dpu(const DataDirectory& data) {
    DpuSpec dpu;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data.path(kDpuPresets, "upmem")), data, errors,
                [&](Fields& fields) { describe(fields, dpu); });
    throw_if_any(errors);
    return dpu;
}

// One thread adds 1 to every 32-bit float of an array: software addition of 71.3 instructions with its loop (4.91 million a second of a
// full pipeline, PrIM, recalled); where the array is in the bank, each is read and written.
double seconds_of(const DpuSpec& dpu, const FactsRow& row) {
    const double cores = row.number("cores");
    const double bytes = row.number("bytes");
    if (row.text("what") == "copy") {
        return copy_seconds(dpu, cores, bytes);
    }
    const double floats = bytes / 4;
    const double accesses = row.text("where") == "mram" ? floats : 0;
    return launch_seconds(dpu, cores, 1, {71.3 * floats, accesses, accesses, 8});
}

}  // namespace

void compare_upmem(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    const DpuSpec dpu = read_dpu(data);
    std::map<std::string, std::vector<double>> groups;
    for (const FactsRow& row : read_facts_table(data.path("validation/devices/upmem.csv"))) {
        const double measured = row.number("microseconds") * 1e-6;
        const double predicted = seconds_of(dpu, row);
        const std::string group =
            fmt::format("{} {}, {} cores", row.text("what"), row.text("where"), row.text("cores"));
        const bool scored = row.text("use") == "score";
        if (scored) {
            out.score("upmem", fmt::format("{}, {} B", group, row.text("bytes")), measured, predicted);
        }
        groups[scored ? group : group + " (gave constants)"].push_back(predicted / measured - 1);
    }
    std::vector<std::vector<std::string>> table;
    for (const auto& [name, errors] : groups) {
        const ErrorStatistics s = statistics_of(errors);
        table.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                         fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst)});
    }
    out.table(terminal, "copies to UPMEM's cores, and their launches",
              {"what", "points", "MAPE", "median bias", "worst"}, std::move(table));
}

}  // namespace orrery::validation
