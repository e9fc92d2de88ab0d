#pragma once
// Names of devices as drivers and profilers give them ("NVIDIA A100-SXM4-80GB"), as presets.

#include "sim/base/namespaces.hpp"

#include <string>

namespace orrery::replay {

/// Key of a record's head that holds the device's own name.
inline constexpr const char* kRecordedOn = "recorded_on";

/// The device preset that a driver's name means; empty where none is known for it.
[[nodiscard]] std::string device_preset_of(const std::string& name);

}  // namespace orrery::replay
