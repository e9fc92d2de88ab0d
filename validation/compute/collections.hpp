#pragma once
// Public profiles joined into collections: what one source measured on one device with one set of libraries.

#include "models/calibration/points.hpp"
#include "models/calibration/profiles.hpp"
#include "sim/config/fields.hpp"

namespace orrery {

struct Collection {
    std::string device, source, licence;
    DeviceSpec spec;
    std::vector<PointSet> sets;
    std::vector<std::string> missing;  ///< files that are not in the directory
};

/// Reads a device preset. Throws ConfigError.
[[nodiscard]] DeviceSpec read_device(const std::string& name, const DataDirectory& data);
/// Every collection whose files are in `directory`, in the order of `public_profiles()`; those without any file are
/// there with no sets. Throws ConfigError for malformed files.
[[nodiscard]] std::vector<Collection> load_collections(const std::string& directory, const DataDirectory& data);
/// Fits every set of a collection with at least `kFewest` points.
inline constexpr std::size_t kFewest = 12;
[[nodiscard]] KernelFit calibrate_set(const PointSet& set, const DeviceSpec& device,
                                      const std::map<std::string, std::string>& meta);

}  // namespace orrery
