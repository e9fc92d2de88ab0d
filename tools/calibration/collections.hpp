#pragma once
// Public profiles joined into collections: what one source measured on one device with one set of libraries.

#include "models/calibration/points.hpp"
#include "models/calibration/profiles.hpp"
#include "sim/config/fields.hpp"
#include "topologies/device_preset.hpp"

namespace orrery::calibration {

struct Collection {
    std::string device, source, licence, kernel_set;
    DeviceSpec spec;
    std::vector<PointSet> sets;
    std::vector<std::string> missing;  ///< files that are not in the directory
};

/// Throws ConfigError where a directory is not there or has none of the public profiles.
void require_profiles(const std::string& directory);

/// Every collection whose files are in `directory`, in the order of `public_profiles()`; those without any file are
/// there with no sets. Throws ConfigError for malformed files.
[[nodiscard]] std::vector<Collection> load_collections(const std::string& directory, const DataDirectory& data);
/// Sets below it have no fit.
inline constexpr std::size_t kFewest = 12;
[[nodiscard]] KernelFit calibrate_set(const PointSet& set, const DeviceSpec& device,
                                      const std::map<std::string, std::string>& meta);

/// The fit of a device's kernel.
struct DeviceFit {
    std::string device;   ///< with "/set" where it belongs to a set of kernels of its own
    const PointSet* set;  ///< of one of the collections
    KernelFit fit;
};
/// Fits the first collection of each device, kernel and format, and every set of kernels of its own, then judges the sparse
/// split anew with the fit of the sibling that the device's preset names.
[[nodiscard]] std::vector<DeviceFit> fit_collections(const std::vector<Collection>& collections);

}  // namespace orrery::calibration
