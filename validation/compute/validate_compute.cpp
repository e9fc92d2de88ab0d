#include "models/calibrated.hpp"
#include "tools/calibration/collections.hpp"
#include "validation/compute/beside.hpp"
#include "validation/compute/held_rows.hpp"
#include "validation/compute/passes.hpp"
#include "validation/statistics.hpp"
#include "validation/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

namespace orrery::validation {

namespace {

std::string error_cell(const std::map<std::string, HeldBack>& held_back, const char* split) {
    const auto found = held_back.find(split);
    return found == held_back.end() ? "-"
                                    : fmt::format("{:.1f} / {:.1f}", 100 * found->second.mape, 100 * found->second.p95);
}

std::string kernel_name(KernelKind kind, KernelFormat format) {
    return fmt::format("{} {}", kernel_kind_names()[static_cast<std::size_t>(kind)],
                       kernel_format_names()[static_cast<std::size_t>(format)]);
}

/// Kinds of kernels whose mean errors are scores, first to last in the order of KernelKind.
struct ScoredKinds {
    const char* name;
    KernelKind first, last;
};
constexpr ScoredKinds kScored[] = {{"latent", KernelKind::latent_prefill, KernelKind::latent_decode},
                                   {"linear", KernelKind::convolution, KernelKind::kimi_decode},
                                   {"indexer", KernelKind::index_prefill, KernelKind::sparse_prefill}};

/// Targets on held-back rows of 20 us and more, in per cent.
double target_of(const KernelFit& fit, const std::string& split) {
    const bool attention = is_prompt(fit.kind) || fit.kind == KernelKind::decode;
    if (split == "larger" || (split == "layer" && fit.held_back.contains("random"))) {
        return 10;
    }
    if (split == "sparse" || split == "sibling" || split == "random") {
        return attention ? 8 : 6;
    }
    return 12;
}

// Mean errors of each split in per cent, one a column, as numbers to sort by.
ComparisonTable held_back_table(const std::vector<std::pair<std::string, KernelFit>>& fits) {
    constexpr const char* kSplits[] = {"sparse", "random", "larger", "layer", "short"};
    ComparisonTable out{
        "Kernels that the fits have not seen: mean error in per cent, those of 20 us and more (short: below)",
        {"device", "kernel", "rows", "sparse 5 %", "random", "larger", "new layer", "short"},
        {}};
    for (const auto& [device, fit] : fits) {
        std::vector<std::string> row = {device, kernel_name(fit.kind, fit.format), std::to_string(fit.rows)};
        for (const char* split : kSplits) {
            const auto found = fit.held_back.find(split);
            row.push_back(found == fit.held_back.end() ? "" : fmt::format("{:.1f}", 100 * found->second.mape));
        }
        out.rows.push_back(std::move(row));
    }
    return out;
}

std::string first_words(const std::vector<std::pair<std::string, KernelFit>>& fits) {
    std::map<std::string, std::vector<double>> errors;
    for (const auto& [device, fit] : fits) {
        for (const char* split : {"sparse", "layer"}) {
            if (const auto found = fit.held_back.find(split); found != fit.held_back.end()) {
                errors[split].push_back(found->second.mape);
            }
        }
    }
    return fmt::format(
        "Kernels of 20 us and more that {} fits have not seen: half of the fits err by less than {:.1f} % on average "
        "when they "
        "see 5 % of the rows, by less than {:.1f} % on a layer that they have not seen.",
        fits.size(), statistics_of(errors["sparse"]).median_bias, statistics_of(errors["layer"]).median_bias);
}

void print_fits(const Terminal& terminal, const std::vector<std::pair<std::string, KernelFit>>& fits) {
    std::vector<std::vector<std::string>> rows;
    std::map<std::string, std::pair<int, int>> met;  // by kind: splits within their target, and all
    for (const auto& [device, fit] : fits) {
        std::vector<std::string> row = {device, kernel_name(fit.kind, fit.format), std::to_string(fit.rows),
                                        std::to_string(fit.refused)};
        for (const char* split : {"sparse", "sibling", "random", "larger", "layer", "short"}) {
            row.push_back(error_cell(fit.held_back, split));
        }
        for (const auto& [split, error] : fit.held_back) {
            if (split != "short") {
                auto& [good, all] = met[kernel_kind_names()[static_cast<std::size_t>(fit.kind)] +
                                        (split == "sibling" ? ", sparse with a sibling" : "")];
                good += 100 * error.mape <= target_of(fit, split) ? 1 : 0;
                ++all;
            }
        }
        rows.push_back(row);
    }
    terminal.heading("held-back kernels of 20 us and more: error in per cent, mean / 95 % (short: below 20 us)");
    terminal.table(
        {"device", "kernel", "rows", "refused", "sparse 5 %", "+ sibling", "random", "larger", "new layer", "short"},
        rows);
    terminal.heading(
        "splits within their target (products and latent attention 6 %, attention 8 %; larger, new layer 10 %; small "
        "tables 12 %)");
    rows.clear();
    for (const auto& [kind, count] : met) {
        rows.push_back({kind, fmt::format("{} of {}", count.first, count.second)});
    }
    terminal.table({}, rows);
}

std::vector<MeasuredPoint> of_20_us(const std::vector<MeasuredPoint>& points) {
    std::vector<MeasuredPoint> out;
    std::copy_if(points.begin(), points.end(), std::back_inserter(out),
                 [](const MeasuredPoint& one) { return one.seconds >= 20e-6; });
    return out;
}

std::vector<std::pair<std::string, KernelFit>> committed_fits(const DataDirectory& data) {
    std::vector<std::pair<std::string, KernelFit>> fits;
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(data.path("models/data/kernels"))) {
        if (entry.path().extension() == ".fit") {
            files.push_back(entry.path().string());
        }
    }
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) {
        const std::filesystem::path folder = std::filesystem::path(file).parent_path();
        fits.emplace_back(std::filesystem::relative(folder, data.path("models/data/kernels")).string(), load_fit(file));
    }
    return fits;
}

// Every table of a device that names a sibling, priced by the fit of that sibling's at this device's peaks: what a device without
// tables of its own may expect. Whole tables, of which the fits have seen no row.
void list_borrowed(const Terminal& terminal, const std::vector<Collection>& collections, const DataDirectory& data) {
    const auto fits = committed_fits(data);
    std::vector<std::vector<std::string>> rows;
    std::map<KernelKind, std::vector<double>> means;
    std::set<std::tuple<std::string, KernelKind, KernelFormat>>
        listed;  // a device's first collection is the one it is priced by
    for (const Collection& collection : collections) {
        for (const PointSet& set : collection.sets) {
            const std::string& lender = collection.spec.sibling_kernels;
            const auto fit = std::find_if(fits.begin(), fits.end(), [&](const auto& one) {
                return one.first == lender && one.second.kind == set.kind && one.second.format == set.format;
            });
            if (!collection.kernel_set.empty() || fit == fits.end() ||
                !listed.emplace(collection.device, set.kind, set.format).second) {
                continue;
            }
            const auto points = of_20_us(set.points);
            double bias = 0;
            const HeldBack error = errors_on(
                fit->second, points, kernel_rates(collection.spec, set.points.front().point.precision), nullptr, &bias);
            means[set.kind].push_back(error.mape);
            rows.push_back({collection.device, kernel_name(set.kind, set.format), lender, std::to_string(error.rows),
                            fmt::format("{:.1f} / {:.1f}", 100 * error.mape, 100 * error.p95),
                            fmt::format("{:+.1f} %", -100 * bias)});
        }
    }
    terminal.heading("tables priced by the kernels of another device (no row of theirs fitted)");
    terminal.table({"device", "kernel", "priced by", "rows", "error, mean / 95 %", "mean bias"}, rows);
    rows.clear();
    for (const auto& [kind, errors] : means) {
        const ErrorStatistics all = statistics_of(errors);
        rows.push_back({kernel_kind_names()[static_cast<std::size_t>(kind)], std::to_string(all.count),
                        fmt::format("{:.1f} %", all.mape), fmt::format("{:.1f} %", all.worst)});
    }
    terminal.heading("their means by kind");
    terminal.table({"kind", "tables", "mean", "worst"}, rows);
}

// Fits anew what the public profiles hold, and prices other collections of the same devices with the first one's fit.
std::vector<std::pair<std::string, KernelFit>> refitted(const Terminal& terminal, const std::string& directory,
                                                        const DataDirectory& data) {
    std::vector<std::pair<std::string, KernelFit>> fits;
    std::vector<std::vector<std::string>> others;
    std::vector<std::vector<std::string>> missing;
    const std::vector<Collection> collections = load_collections(directory, data);
    list_borrowed(terminal, collections, data);
    const std::vector<DeviceFit> firsts = fit_collections(collections);
    for (const DeviceFit& one : firsts) {
        fits.emplace_back(one.device, one.fit);
    }
    for (const Collection& collection : collections) {
        for (const std::string& file : collection.missing) {
            missing.push_back({collection.device, file});
        }
        for (const PointSet& set : collection.sets) {
            const auto first = std::find_if(firsts.begin(), firsts.end(), [&](const DeviceFit& one) {
                return one.device == collection.device && one.set->kind == set.kind && one.set->format == set.format;
            });
            if (first == firsts.end() || first->set == &set) {
                continue;
            }
            const auto points = of_20_us(set.points);
            double bias = 0;
            const HeldBack error = errors_on(
                first->fit, points, kernel_rates(collection.spec, set.points.front().point.precision), nullptr, &bias);
            others.push_back({collection.device, kernel_name(set.kind, set.format), collection.source,
                              std::to_string(error.rows),
                              fmt::format("{:.1f} / {:.1f}", 100 * error.mape, 100 * error.p95),
                              fmt::format("{:+.1f} %", -100 * bias)});
        }
    }
    if (!missing.empty()) {
        terminal.heading("not in the directory, so not validated");
        terminal.table({"device", "file"}, missing);
    }
    std::sort(fits.begin(), fits.end(), [](const auto& a, const auto& b) {
        return std::tie(a.first, a.second.kind, a.second.format) < std::tie(b.first, b.second.kind, b.second.format);
    });
    terminal.heading(
        "other collections of the same device, priced with the fit of the first (no row of theirs fitted)");
    terminal.table({"device", "kernel", "collection", "rows", "error, mean / 95 %", "mean bias"}, others);
    list_held(data, terminal, directory);
    return fits;
}

}  // namespace

Comparison validate_compute(const DataDirectory& data, const Terminal& terminal, const std::string& directory,
                            bool points) {
    const bool raw = !directory.empty();
    const auto fits = raw ? refitted(terminal, directory, data) : committed_fits(data);
    if (!raw) {
        fmt::print(
            "errors as stored with the committed fits; --data DIR fits the public profiles anew and compares other "
            "collections\n");
    }
    print_fits(terminal, fits);
    Comparison out{"compute",
                   "whole passes of served models",
                   "Sums of kernels and all-reduces alone: nothing is fitted on these passes, and what the host adds "
                   "to them is not in the prediction.",
                   first_words(fits),
                   {"what", "node", "model"},
                   {},
                   {}};
    out.tables.push_back(held_back_table(fits));
    validate_ceilings(data, terminal, out);
    validate_passes(data, terminal, points, out);
    validate_modules(data, terminal, points, out);
    validate_beside(data, terminal, points, out);
    for (const ScoredKinds& scored : kScored) {
        for (const char* split : {"sparse", "sibling", "layer"}) {
            std::vector<double> means;
            for (const auto& [device, fit] : fits) {
                const auto found = fit.held_back.find(split);
                if (scored.first <= fit.kind && fit.kind <= scored.last && found != fit.held_back.end()) {
                    means.push_back(found->second.mape);
                }
            }
            out.scores.push_back({fmt::format("{}_{}", scored.name, split), statistics_of(means).mape, "%"});
        }
    }
    std::vector<double> errors;
    for (const ScatterPoint& point : out.points) {
        errors.push_back(point.predicted / point.measured - 1);
    }
    const ErrorStatistics passes = statistics_of(errors);
    out.scores.push_back({"passes", static_cast<double>(passes.count), ""});
    out.scores.push_back({"passes_error", passes.mape, "%"});
    out.scores.push_back({"passes_bias", std::abs(passes.median_bias), "%"});
    return out;
}

}  // namespace orrery::validation
