// `orrery calibrate`: from traces of microbenchmarks to fitted kernels and collectives.

#include "models/calibration/collectives.hpp"
#include "models/calibration/device_figures.hpp"
#include "models/calibration/trace.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/summary.hpp"
#include "tools/calibration/collections.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>

namespace orrery::program {

namespace {

std::string fit_name(const KernelFit& fit) {
    return fmt::format("{}-{}", kernel_kind_names()[static_cast<std::size_t>(fit.kind)],
                       kernel_format_names()[static_cast<std::size_t>(fit.format)]);
}

void make_folder(const std::string& folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
        throw ConfigError(
            {Diagnostic{folder, 0, 0, "cannot be made: " + failed.message(), ErrorCode::unwritable_file}});
    }
}

void write_fit(const CommandLine& line, const KernelFit& fit, const std::string& folder) {
    make_folder(folder);
    write_output(line, "the fit", folder + "/" + fit_name(fit) + ".fit", format_fit(fit));
}

// Whether two lists of libraries, as the head of a fit has them, name one library in any version.
bool share_library(const std::string& a, const std::string& b) {
    std::set<std::string> names;
    for (const std::string_view one : split(a, ';')) {
        names.insert(kernel_set_name(std::string(one.substr(std::min(one.size(), one.find_first_not_of(' '))))));
    }
    for (const std::string_view one : split(b, ';')) {
        if (names.contains(
                kernel_set_name(std::string(one.substr(std::min(one.size(), one.find_first_not_of(' '))))))) {
            return true;
        }
    }
    return false;
}

// Where a fit goes: kernels of another library than those that the folder holds become a set of their own in it.
std::string folder_for(const KernelFit& fit, const PointSet& set, const std::string& folder) {
    if (!set.kernel_set.empty()) {
        return folder + "/" + set.kernel_set;
    }
    const std::string there = folder + "/" + fit_name(fit) + ".fit";
    const auto library = [](const KernelFit& one) {
        const auto found = one.meta.find("library");
        return found == one.meta.end() ? std::string() : found->second;
    };
    if (!std::filesystem::exists(there)) {
        return folder;
    }
    const std::string before = library(load_fit(there));
    if (share_library(before, library(fit))) {
        return folder;
    }
    const std::string name = kernel_set_name(library(fit).substr(0, library(fit).find(';')));
    if (name.empty()) {
        throw ConfigError(
            {Diagnostic{there, 0, 0,
                        fmt::format("is of {}; the trace names no library for its rows of this kind, so that "
                                    "they have no set of their own to go to",
                                    before)}});
    }
    say(stderr, "kept: {} is of {}; the fit of {} goes to the set '{}'\n", there, before, library(fit), name);
    return folder + "/" + name;
}

void list_use(const Terminal& terminal, const TraceUse& use) {
    terminal.heading(fmt::format("{} rows: {} fitted, {} of collectives, {} held back", use.rows(), use.fitted,
                                 use.collectives, use.held_back));
    std::vector<std::vector<std::string>> rows;
    for (const DeviceFigure& figure : use.figures) {
        rows.push_back({figure.key, pretty_quantity(figure.value, figure.dimension),
                        figure.before > 0 ? pretty_quantity(figure.before, figure.dimension) : "-", figure.from,
                        figure.rows > 0 ? std::to_string(figure.rows) : "-"});
    }
    if (!rows.empty()) {
        terminal.heading("figures of the device file");
        terminal.table({"figure", "measured", "in the file", "from", "rows"}, rows);
    }
    rows.clear();
    for (const UnusedRows& one : use.unused) {
        rows.push_back({one.what, std::to_string(one.rows), one.shows, one.why});
    }
    if (!rows.empty()) {
        terminal.heading("read and not used");
        terminal.table({"what", "rows", "measured", "why"}, rows);
    }
}

// Takes rows out of a trace whose operation, number format, library, kernel or point's name holds one of the texts.
void leave_out(Trace& trace, const std::vector<std::string>& named) {
    for (const std::string& text : named) {
        const auto before = trace.rows.size();
        std::erase_if(trace.rows, [&](const TraceRow& row) {
            for (const std::string* part : {&row.op, &row.dtype, &row.library, &row.kernel, &row.point}) {
                if (part->find(text) != std::string::npos) {
                    return true;
                }
            }
            return false;
        });
        if (trace.rows.size() == before) {
            throw ConfigError(
                fmt::format("--without '{}': no row's operation, dtype, library, kernel or point has it", text),
                ErrorCode::command_line);
        }
        say(stderr, "left out: {} rows with '{}'\n", before - trace.rows.size(), text);
    }
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
        say(stderr, "refused: {}\n", set.refused[i].to_string());
    }
    if (set.refused_rows > static_cast<std::int64_t>(kShown)) {
        say(stderr, "refused: {} rows in all\n", set.refused_rows);
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
            name, 0, 0, "times collectives: needs '# link_gbps: ' with the GB/s of a GPU's links in one direction",
            ErrorCode::malformed_trace}});
    }
    return value * 1e9;
}

void write_collectives(const CommandLine& line, const CollectiveFit& fit, const std::string& folder,
                       const std::string& name) {
    make_folder(folder);
    write_output(line, "the fit", folder + "/" + name + ".fit", format_collective_fit(fit));
}

void calibrate_trace(const CommandLine& line, const DataDirectory& data, const Terminal& terminal,
                     std::vector<std::vector<std::string>>& rows, std::vector<std::vector<std::string>>& curves) {
    const std::string& name = line.arguments[0];
    const std::string output = line.text("output");
    Trace trace = read_trace(name);
    leave_out(trace, line.values("without"));
    const DeviceSpec device = read_device(trace.device(), data);
    std::map<std::string, std::string> meta;
    for (const char* key : {"device", "source", "date", "licence", "driver", "cuda"}) {
        const auto found = trace.meta.find(key);
        if (found != trace.meta.end()) {
            meta[key] = found->second;
        }
    }
    const TraceUse use = use_of(trace, device);
    if (!line.quiet()) {
        list_use(terminal, use);
    }
    for (const PointSet& set : point_sets(trace, device, name)) {
        name_refused(set);
        if (set.points.size() < kFewest) {
            say(stderr, "left out: {} in {}{} has {} rows, fewer than {}\n",
                kernel_kind_names()[static_cast<std::size_t>(set.kind)],
                kernel_format_names()[static_cast<std::size_t>(set.format)],
                set.kernel_set.empty() ? "" : " of " + set.kernel_set, set.points.size(), kFewest);
            continue;
        }
        const KernelFit fit = calibrate_set(set, device, meta);
        rows.push_back(row_of(trace.device() + (set.kernel_set.empty() ? "" : "/" + set.kernel_set), fit));
        if (!output.empty()) {
            write_fit(line, fit, folder_for(fit, set, output));
        }
    }
    if (!use.figures.empty() && !output.empty()) {
        make_folder(output);
        const std::string source = fmt::format("{}, {}", trace.meta.at("source"), trace.meta.at("date"));
        write_output(line, "the device", output + "/device.yaml",
                     format_device(with_figures(device, use.figures, source)));
    }
    CollectiveFit fit;
    fit.curves = collective_curves(trace);
    if (!fit.curves.empty()) {
        fit.sources = {fmt::format("{}, {}", trace.meta.at("source"), trace.meta.at("date"))};
        fit.bandwidth = link_bandwidth(trace, name);
        list_curves(trace.device(), fit.curves, curves);
        if (!output.empty()) {
            write_collectives(line, fit, output, "collectives");
        }
    }
}

}  // namespace

int command_calibrate(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    const std::string output = line.text("output");
    std::vector<std::vector<std::string>> rows;
    std::vector<std::vector<std::string>> curves;
    if (line.arguments.empty()) {
        if (line.has("without")) {
            throw ConfigError("--without belongs to a trace: the public profiles' list says what is left out of them",
                              ErrorCode::command_line);
        }
        if (line.text("data").empty()) {
            throw ConfigError("'orrery calibrate' takes a trace, or --data with the directory of the public profiles",
                              ErrorCode::command_line);
        }
        const std::vector<Collection> collections = load_collections(line.text("data"), data);
        Progress progress(terminal, "fitting kernels");
        const auto fits = fit_collections(collections);
        progress.finish();
        for (const DeviceFit& one : fits) {
            rows.push_back(row_of(one.device, one.fit));
            if (!output.empty()) {
                write_fit(line, one.fit, output + "/kernels/" + one.device);
            }
        }
        for (const auto& [fabric, fit] : fit_public_collectives(line.text("data"))) {
            list_curves(fabric, fit.curves, curves);
            if (!output.empty()) {
                write_collectives(line, fit, output + "/collectives", fabric);
            }
        }
    } else {
        calibrate_trace(line, data, terminal, rows, curves);
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

}  // namespace orrery::program
