#include "tools/calibration/collections.hpp"

#include "models/calibration/collectives.hpp"
#include "topologies/cluster_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace orrery::calibration {

void require_profiles(const std::string& directory) {
    std::error_code failed;
    if (!std::filesystem::is_directory(directory, failed)) {
        throw ConfigError({Diagnostic{directory, 0, 0, "no such folder: --data names the one with the public profiles",
                                      ErrorCode::unreadable_file}});
    }
    const auto there = [&](const PublicProfile& profile) {
        return std::filesystem::exists(directory + "/" + profile.path, failed);
    };
    const auto& kernels = public_profiles();
    const auto& collectives = public_collectives();
    if (std::none_of(kernels.begin(), kernels.end(), there) &&
        std::none_of(collectives.begin(), collectives.end(), [&](const auto& table) { return there(table.profile); })) {
        throw ConfigError(
            {Diagnostic{directory, 0, 0,
                        fmt::format("holds none of the public profiles, such as {} (CONTRIBUTING.md, Raw data)",
                                    kernels.front().path),
                        ErrorCode::unreadable_file}});
    }
}

std::vector<Collection> load_collections(const std::string& directory, const DataDirectory& data) {
    require_profiles(directory);
    std::vector<Collection> out;
    std::vector<Trace> traces;
    for (const PublicProfile& profile : public_profiles()) {
        std::size_t at = 0;
        while (at < out.size() && (out[at].device != profile.device || out[at].source != profile.source ||
                                   out[at].kernel_set != profile.kernel_set)) {
            ++at;
        }
        if (at == out.size()) {
            out.push_back({profile.device,
                           profile.source,
                           profile.licence,
                           profile.kernel_set,
                           read_device(profile.device, data),
                           {},
                           {}});
            traces.emplace_back();
        }
        std::error_code failed;
        if (!std::filesystem::exists(directory + "/" + profile.path, failed)) {
            out[at].missing.emplace_back(profile.path);
            continue;
        }
        // Sets of one file name its lines; those of several files share a fit.
        const Trace trace = read_profile(profile, directory);
        for (PointSet& set : point_sets(trace, out[at].spec, directory + "/" + profile.path)) {
            if (!set.kernel_set.empty()) {
                continue;  // a minority kernel
            }
            const auto same = std::find_if(out[at].sets.begin(), out[at].sets.end(), [&](const PointSet& other) {
                return other.kind == set.kind && other.format == set.format;
            });
            if (same == out[at].sets.end()) {
                out[at].sets.push_back(std::move(set));
                continue;
            }
            same->points.insert(same->points.end(), set.points.begin(), set.points.end());
            same->refused.insert(same->refused.end(), set.refused.begin(), set.refused.end());
            same->refused_rows += set.refused_rows;
        }
    }
    return out;
}

KernelFit calibrate_set(const PointSet& set, const DeviceSpec& device, const std::map<std::string, std::string>& meta) {
    KernelFit fit = calibrate_kernel(set.points, kernel_rates(device, set.points.front().point.precision));
    fit.meta = meta;
    fit.refused = set.refused_rows;
    fit.quantisation = set.quantisation;
    if (!set.libraries.empty()) {
        fit.meta["library"] = fmt::format("{}", fmt::join(set.libraries, "; "));
    }
    return fit;
}

std::vector<DeviceFit> fit_collections(const std::vector<Collection>& collections) {
    std::vector<DeviceFit> fits;
    std::vector<const DeviceSpec*> devices;
    const auto same = [&](const std::string& device, const PointSet& set) {
        return std::find_if(fits.begin(), fits.end(), [&](const DeviceFit& one) {
            return one.device == device && one.set->kind == set.kind && one.set->format == set.format;
        });
    };
    for (const Collection& collection : collections) {
        const std::string name = collection.device + (collection.kernel_set.empty() ? "" : "/" + collection.kernel_set);
        for (const PointSet& set : collection.sets) {
            if (set.points.size() >= kFewest && same(name, set) == fits.end()) {
                fits.push_back({name, &set,
                                calibrate_set(set, collection.spec,
                                              {{"device", collection.device},
                                               {"source", collection.source},
                                               {"licence", collection.licence}})});
                devices.push_back(&collection.spec);
            }
        }
    }
    for (std::size_t i = 0; i < fits.size(); ++i) {
        const PointSet& set = *fits[i].set;
        const std::string& name = devices[i]->sibling_kernels;
        if (const auto sibling = same(name, set); sibling != fits.end()) {
            judge_sibling(fits[i].fit, set.points, kernel_rates(*devices[i], set.points.front().point.precision),
                          sibling->fit, name);
        }
    }
    return fits;
}

}  // namespace orrery::calibration
