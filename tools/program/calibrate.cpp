// `orrery calibrate`: from traces of microbenchmarks to fitted kernels.

#include "models/calibration/trace.hpp"
#include "sim/record/summary.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/terminal.hpp"
#include "validation/compute/collections.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <set>

namespace orrery {

namespace {

std::string fit_name(const KernelFit& fit) {
    return fmt::format("{}-{}", kernel_kind_names()[static_cast<std::size_t>(fit.kind)],
                       kernel_format_names()[static_cast<std::size_t>(fit.format)]);
}

void write_fit(const KernelFit& fit, const std::string& folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
        throw ConfigError({Diagnostic{folder, 0, 0, "cannot be made: " + failed.message()}});
    }
    write_file(folder + "/" + fit_name(fit) + ".fit", format_fit(fit));
}

std::vector<std::string> row_of(const std::string& device, const KernelFit& fit) {
    std::vector<std::string> row = {device, fit_name(fit), std::to_string(fit.rows), std::to_string(fit.refused)};
    for (const char* split : {"sparse", "random", "larger", "layer", "short"}) {
        const auto found = fit.held_back.find(split);
        row.push_back(found == fit.held_back.end()
                          ? "-"
                          : fmt::format("{:.1f} / {:.1f}", 100 * found->second.mape, 100 * found->second.p95));
    }
    row.push_back(fmt::format("{} {} {} {}", static_cast<int>(fit.prior), fit.rounding, fit.smoothness,
                              static_cast<int>(fit.beyond)));
    return row;
}

const std::vector<std::string> kHeader = {"device", "kernel", "rows",  "refused", "sparse",
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

}  // namespace

int command_calibrate(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal(line.color(), line.quiet());
    const std::string output = line.text("output");
    std::vector<std::vector<std::string>> rows;
    if (line.arguments.empty()) {
        if (line.text("data").empty()) {
            throw ConfigError("'orrery calibrate' takes a trace, or --data with the directory of the public profiles");
        }
        std::set<std::string> done;  // the first collection of a device, kernel and format is the one that is kept
        for (const Collection& collection : load_collections(line.text("data"), data)) {
            for (const PointSet& set : collection.sets) {
                const std::string key = fmt::format("{} {} {}", collection.device, static_cast<int>(set.kind),
                                                    static_cast<int>(set.format));
                if (set.points.size() < kFewest || !done.insert(key).second) {
                    continue;
                }
                const KernelFit fit = calibrate_set(
                    set, collection.spec,
                    {{"device", collection.device}, {"source", collection.source}, {"licence", collection.licence}});
                rows.push_back(row_of(collection.device, fit));
                if (!output.empty()) {
                    write_fit(fit, output + "/" + collection.device);
                }
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
    }
    terminal.heading("held-back error in per cent, mean / 95 %, of kernels of 20 us and more (short: below)");
    terminal.table(kHeader, rows);
    return 0;
}

}  // namespace orrery
