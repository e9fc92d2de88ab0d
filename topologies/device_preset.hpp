#pragma once
// A device by the name of its preset.

#include "sim/device/device_spec.hpp"

namespace orrery::topologies {

/// Or by the path of a file like a preset's, which ends in .yaml. Throws ConfigError with the nearest name for one that is not there.
[[nodiscard]] DeviceSpec read_device(const std::string& name, const DataDirectory& data);

}  // namespace orrery::topologies
