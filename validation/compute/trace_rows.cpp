// `orrery validate compute --trace`: a user's own measurements against the models.

#include "models/calibration/points.hpp"
#include "models/calibration/row_prices.hpp"
#include "tools/calibration/collections.hpp"
#include "validation/compute/step_kernels.hpp"
#include "validation/statistics.hpp"
#include "validation/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery::validation {

namespace {

constexpr double kShort = 20e-6;  // s; shorter kernels are a group apart
constexpr double kSustained = 1;  // s, as the format of traces has it

struct Group {
    std::vector<double> errors;
    std::int64_t inside = 0;  ///< of the predicted 90 % intervals
};

std::string group_of(const TraceRow& row) {
    std::string out = row.op;
    if (row.phase != TracePhase::forward) {
        out += " " + trace_phase_names()[static_cast<std::size_t>(row.phase)];
    }
    out += row.dtype.empty() ? "" : " " + row.dtype;
    out += row.kv_dtype.empty() ? "" : " kv " + row.kv_dtype;
    out += row.mode == "eager" ? ", eager" : "";
    out += row.cache == "warm" ? ", warm" : "";
    out += row.held_s >= kSustained ? ", held" : "";
    return out + (row.median_ns * 1e-9 < kShort ? ", below 20 us" : "");
}

std::string shape_text(const TraceRow& row) {
    std::string out;
    for (const auto& [name, value] : row.shape) {
        out += fmt::format("{}{}={:g}", out.empty() ? "" : " ", name, value);
    }
    return out;
}

}  // namespace

void validate_trace(const DataDirectory& data, const Terminal& terminal, const std::string& file,
                    const std::string& kernels, bool points) {
    const Trace trace = read_trace(file);
    std::map<std::string, StepKernels> profiles;
    if (!kernels.empty()) {
        profiles = read_step_kernels(kernels, trace);
    }
    const DeviceSpec device = read_device(trace.device(), data);
    const RowPricer burst(device, data, "", kBurst);
    const RowPricer held(device, data, "", kHeld);
    const RowPricer mixed(device, data);  // layers and steps run for 0.2 s without a pause: the power limit acts
    const bool sustained = trace.meta.contains("sustained");
    std::map<std::pair<bool, std::string>, Group> groups;  // held-back ones first
    std::map<std::string, std::int64_t> left_out;
    std::vector<std::vector<std::string>> listed;
    for (const TraceRow& row : trace.rows) {
        const bool whole = row.op == "layer" || row.op == "step";
        const RowPricer& pricer = whole ? mixed : row.held_s >= kSustained || sustained ? held : burst;
        const auto price = row.beside.empty() ? pricer.price(row) : std::nullopt;
        if (!price || row.split == "repeat") {
            ++left_out[row.split == "repeat" ? row.op + ": repeats an earlier row"
                       : !row.beside.empty() ? row.op + ": something else ran beside it"
                                             : row.op + ": no model has such an operation"];
            continue;
        }
        const double seconds = row.median_ns * 1e-9;
        const double error = price->seconds / seconds - 1;
        const bool held_back = row.split == "holdout";
        Group& group = groups[{!held_back, group_of(row)}];
        group.errors.push_back(error);
        group.inside += seconds >= price->low && seconds <= price->high ? 1 : 0;
        if (points) {
            listed.push_back({fmt::format("{}", row.line), group_of(row), shape_text(row),
                              fmt::format("{:.4g}", seconds * 1e6), fmt::format("{:.4g}", price->seconds * 1e6),
                              fmt::format("{:+.1f} %", 100 * error), price->binds, price->source});
        }
    }
    if (points) {
        terminal.heading("rows, in us");
        terminal.table({"line", "what", "shape", "measured", "predicted", "error", "binds", "source"}, listed);
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& [key, group] : groups) {
        std::vector<double> sizes;
        for (const double error : group.errors) {
            sizes.push_back(std::abs(error));
        }
        std::sort(sizes.begin(), sizes.end());
        const ErrorStatistics s = statistics_of(group.errors);
        rows.push_back({key.first ? "no" : "yes", key.second, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                        fmt::format("{:.1f} %", 100 * sizes[sizes.size() * 95 / 100]),
                        fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst),
                        fmt::format("{} of {}", group.inside, s.count)});
    }
    terminal.heading(fmt::format("rows of {} against the models of {}", file, device.name));
    terminal.table({"held back", "what", "rows", "MAPE", "95 %", "median bias", "worst", "in the 90 % interval"}, rows);
    if (!profiles.empty()) {
        list_step_kernels(trace, burst, profiles, terminal);  // one execution after a pause
    }
    rows.clear();
    for (const auto& [what, count] : left_out) {
        rows.push_back({std::to_string(count), what});
    }
    if (!rows.empty()) {
        terminal.heading("not priced");
        terminal.table({"rows", "why"}, rows);
    }
    if (groups.empty()) {
        throw ConfigError({Diagnostic{file, 0, 0, "no model has an operation for any of its rows"}});
    }
}

}  // namespace orrery::validation
