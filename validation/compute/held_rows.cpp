#include "validation/compute/held_rows.hpp"

#include "models/calibrated.hpp"
#include "models/calibration/points.hpp"
#include "models/calibration/profiles.hpp"
#include "models/calibration/quantisation.hpp"
#include "topologies/device_preset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <tuple>

namespace orrery::validation {

namespace {

// Shorter ones wait for the host where their activations are quantised first (models/calibration/public_profiles.cpp).
constexpr double kShortest = 300e-6;  // s
// Of the limit: a board that draws as much is held back by it.
constexpr double kLimited = 0.95;

using Size = std::tuple<std::string, double, double, double>;

Size size_of(const TraceRow& row) {
    return {row.dtype, row.dim("m"), row.dim("n"), row.dim("k")};
}

/// Held over burst times of one format.
struct Pairs {
    std::vector<double> below;              ///< measured, where the board was below its limit
    std::vector<double> limited, modelled;  ///< at the limit: measured, and by the governor
};

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

// Mean |log| of what is left between two lists but for their common factor, in per cent.
double left(const std::vector<double>& measured, const std::vector<double>& modelled) {
    std::vector<double> off;
    for (std::size_t i = 0; i < measured.size(); ++i) {
        off.push_back(std::log(measured[i] / modelled[i]));
    }
    const double common = median(off);
    double sum = 0;
    for (const double one : off) {
        sum += std::abs(one - common);
    }
    return off.empty() ? 0 : 100 * sum / static_cast<double>(off.size());
}

std::map<std::string, Pairs> pairs_of(const HeldProfile& profile, const std::string& directory,
                                      const DeviceSpec& device) {
    const Trace held = read_profile(profile.held, directory);
    const Trace burst = read_profile(profile.burst, directory);
    std::vector<const TraceRow*> all;
    std::map<Size, const TraceRow*> bursts;
    for (const TraceRow& row : burst.rows) {
        all.push_back(&row);
        bursts[size_of(row)] = &row;
    }
    const Quantisations quantisations(all, device);
    std::map<std::string, Pairs> out;
    for (const TraceRow& row : held.rows) {
        const auto found = bursts.find(size_of(row));
        const auto point = found == bursts.end() ? std::nullopt : kernel_point(*operation_of(row));
        if (!point || found->second->median_ns * 1e-9 < kShortest) {
            continue;
        }
        const double seconds = found->second->median_ns * 1e-9;
        const double before = std::min(quantisations.seconds(*found->second), seconds / 2);
        const double peak = kernel_rates(device, point->precision).flops;
        Pairs& pairs = out[row.dtype];
        if (row.power_w < kLimited * device.tdp.value) {
            pairs.below.push_back(row.median_ns * 1e-9 / seconds);
            continue;
        }
        // The board's clock follows the mean of the product and the kernel before it.
        const double share = 1 - before / seconds;
        pairs.limited.push_back(row.median_ns * 1e-9 / seconds);
        pairs.modelled.push_back(
            (governed_seconds(device, share, seconds - before, point->flops, point->bytes, peak) + before) / seconds);
    }
    return out;
}

}  // namespace

void list_held(const DataDirectory& data, const Terminal& terminal, const std::string& directory) {
    std::vector<std::vector<std::string>> table;
    for (const HeldProfile& profile : held_profiles()) {
        std::error_code failed;
        const auto there = [&](const PublicProfile& one) {
            return std::filesystem::exists(directory + "/" + one.path, failed);
        };
        if (!there(profile.held) || !there(profile.burst)) {
            table.push_back({profile.held.device, "not in the directory", "", "", "", "", "", ""});
            continue;
        }
        for (const auto& [dtype, pairs] : pairs_of(profile, directory, read_device(profile.held.device, data))) {
            table.push_back({profile.held.device, dtype, std::to_string(pairs.below.size()),
                             fmt::format("{:.3f}", median(pairs.below)), std::to_string(pairs.limited.size()),
                             fmt::format("{:.3f}", median(pairs.limited)),
                             fmt::format("{:.3f}", median(pairs.modelled)),
                             fmt::format("{:.1f} % of {:.1f} %", left(pairs.limited, pairs.modelled),
                                         left(pairs.limited, std::vector<double>(pairs.limited.size(), 1)))});
        }
    }
    terminal.heading("products held for a second over the same in bursts of another version (300 us and more)");
    terminal.table({"device", "format", "below the limit", "median", "at the limit", "median", "governor",
                    "left by it, but for a common factor"},
                   table);
}

}  // namespace orrery::validation
