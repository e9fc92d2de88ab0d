// `orrery calibrate`: from traces of microbenchmarks to fitted kernels and collectives.

#include "models/calibration/collectives.hpp"
#include "models/calibration/trace.hpp"
#include "sim/config/units.hpp"
#include "sim/record/summary.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/terminal.hpp"
#include "validation/compute/collections.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>

namespace orrery {

namespace {

std::string fit_name(const KernelFit& fit) {
    return fmt::format("{}-{}", kernel_kind_names()[static_cast<std::size_t>(fit.kind)],
                       kernel_format_names()[static_cast<std::size_t>(fit.format)]);
}

void make_folder(const std::string& folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
        throw ConfigError({Diagnostic{folder, 0, 0, "cannot be made: " + failed.message()}});
    }
}

void write_fit(const KernelFit& fit, const std::string& folder) {
    make_folder(folder);
    write_file(folder + "/" + fit_name(fit) + ".fit", format_fit(fit));
}

std::vector<std::string> row_of(const std::string& device, const KernelFit& fit) {
    std::vector<std::string> row = {device, fit_name(fit), std::to_string(fit.rows), std::to_string(fit.refused)};
    for (const char* split : {"sparse", "sibling", "random", "larger", "layer", "short"}) {
        const auto found = fit.held_back.find(split);
        row.push_back(found == fit.held_back.end()
                          ? "-"
                          : fmt::format("{:.1f} / {:.1f}", 100 * found->second.mape, 100 * found->second.p95));
    }
    row.push_back(fmt::format("{} {} {} {}", static_cast<int>(fit.prior), fit.rounding, fit.smoothness,
                              static_cast<int>(fit.beyond)));
    return row;
}

const std::vector<std::string> kHeader = {"device", "kernel", "rows",  "refused", "sparse", "sibling",
                                          "random", "larger", "layer", "short",   "prior"};

void name_refused(const PointSet& set) {
    constexpr std::size_t kShown = 5;
    for (std::size_t i = 0; i < std::min(kShown, set.refused.size()); ++i) {
        fmt::print(stderr, "refused: {}\n", set.refused[i].to_string());
    }
    if (set.refused_rows > static_cast<std::int64_t>(kShown)) {
        fmt::print(stderr, "refused: {} rows in all\n", set.refused_rows);
    }
}

const std::vector<std::string> kCurveHeader = {"fabric", "library", "operation", "ranks",
                                               "sizes",  "pieces",  "error",     "every second size"};

void list_curves(const std::string& fabric, const std::vector<CollectiveCurve>& curves,
                 std::vector<std::vector<std::string>>& rows) {
    for (const CollectiveCurve& curve : curves) {
        rows.push_back({fabric, curve.library, collective_op_names()[static_cast<std::size_t>(curve.op)],
                        std::to_string(curve.ranks), std::to_string(curve.points), std::to_string(curve.pieces.size()),
                        fmt::format("{:.1f}", 100 * curve.error), fmt::format("{:.1f}", 100 * curve.held_back)});
    }
}

// Fits of every fabric of the public tables whose files are in `directory`.
std::map<std::string, CollectiveFit> fit_public_collectives(const std::string& directory) {
    std::map<std::string, CollectiveFit> fits;
    for (const PublicCollectives& table : public_collectives()) {
        if (!table.fitted || !std::filesystem::exists(directory + "/" + table.profile.path)) {
            continue;
        }
        CollectiveFit& fit = fits[table.fabric];
        fit.bandwidth = table.bandwidth;
        fit.sources.push_back(
            fmt::format("{}, {} ({})", table.profile.source, table.profile.device, table.profile.licence));
        for (CollectiveCurve& curve : collective_curves(read_profile(table.profile, directory))) {
            if (table.most_ranks == 0 || curve.ranks <= table.most_ranks) {
                fit.curves.push_back(std::move(curve));
            }
        }
    }
    return fits;
}

// A trace of collectives says what links it ran on: `link_gbps`, GB/s of a GPU in one direction.
double link_bandwidth(const Trace& trace, const std::string& name) {
    const auto found = trace.meta.find("link_gbps");
    double value = 0;
    if (found == trace.meta.end() || !parse_number(found->second, value) || !(value > 0 && value < 1e6)) {
        throw ConfigError({Diagnostic{
            name, 0, 0, "times collectives: needs '# link_gbps: ' with the GB/s of a GPU's links in one direction"}});
    }
    return value * 1e9;
}

void write_collectives(const CollectiveFit& fit, const std::string& folder, const std::string& name) {
    make_folder(folder);
    write_file(folder + "/" + name + ".fit", format_collective_fit(fit));
}

}  // namespace

int command_calibrate(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal(line.color(), line.quiet());
    const std::string output = line.text("output");
    std::vector<std::vector<std::string>> rows;
    std::vector<std::vector<std::string>> curves;
    if (line.arguments.empty()) {
        if (line.text("data").empty()) {
            throw ConfigError("'orrery calibrate' takes a trace, or --data with the directory of the public profiles");
        }
        const std::vector<Collection> collections = load_collections(line.text("data"), data);
        for (const DeviceFit& one : fit_collections(collections)) {
            rows.push_back(row_of(one.device, one.fit));
            if (!output.empty()) {
                write_fit(one.fit, output + "/kernels/" + one.device);
            }
        }
        for (const auto& [fabric, fit] : fit_public_collectives(line.text("data"))) {
            list_curves(fabric, fit.curves, curves);
            if (!output.empty()) {
                write_collectives(fit, output + "/collectives", fabric);
            }
        }
    } else {
        const Trace trace = read_trace(line.arguments[0]);
        const DeviceSpec device = read_device(trace.device(), data);
        std::map<std::string, std::string> meta;
        for (const char* key : {"device", "source", "date", "licence", "driver", "cuda"}) {
            const auto found = trace.meta.find(key);
            if (found != trace.meta.end()) {
                meta[key] = found->second;
            }
        }
        for (const PointSet& set : point_sets(trace, device, line.arguments[0])) {
            name_refused(set);
            if (set.points.size() < kFewest) {
                fmt::print(stderr, "left out: {} in {} has {} rows, fewer than {}\n",
                           kernel_kind_names()[static_cast<std::size_t>(set.kind)],
                           kernel_format_names()[static_cast<std::size_t>(set.format)], set.points.size(), kFewest);
                continue;
            }
            const KernelFit fit = calibrate_set(set, device, meta);
            rows.push_back(row_of(trace.device(), fit));
            if (!output.empty()) {
                write_fit(fit, output);
            }
        }
        CollectiveFit fit;
        fit.curves = collective_curves(trace);
        if (!fit.curves.empty()) {
            fit.sources = {fmt::format("{}, {}", trace.meta.at("source"), trace.meta.at("date"))};
            fit.bandwidth = link_bandwidth(trace, line.arguments[0]);
            list_curves(trace.device(), fit.curves, curves);
            if (!output.empty()) {
                write_collectives(fit, output, "collectives");
            }
        }
    }
    if (!rows.empty()) {
        terminal.heading("held-back error in per cent, mean / 95 %, of kernels of 20 us and more (short: below)");
        terminal.table(kHeader, rows);
    }
    if (!curves.empty()) {
        terminal.heading(
            "collectives inside a node: mean error in per cent of the fit, and of every second size held back");
        terminal.table(kCurveHeader, curves);
    }
    return 0;
}

}  // namespace orrery
