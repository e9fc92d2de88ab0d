#include "topologies/device_preset.hpp"

#include "sim/base/text.hpp"
#include "sim/config/yaml_tree.hpp"
#include "topologies/cluster_spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::inline topologies {

DeviceSpec read_device(const std::string& name, const DataDirectory& data) {
    const std::vector<std::string> names = data.names(kDevicePresets);
    const bool own = name.ends_with(".yaml");
    if (!own && std::find(names.begin(), names.end(), name) == names.end()) {
        const std::string near = nearest_name(name, names);
        throw ConfigError(
            fmt::format("unknown device '{}'{}", name, near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
    }
    DeviceSpec spec;
    std::vector<Diagnostic> errors;
    const auto file = own ? std::make_shared<const YamlNode>(load_yaml(name)) : data.preset(kDevicePresets, name);
    read_fields(*file, data, errors, [&](Fields& fields) { describe(fields, spec); });
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    return spec;
}

}  // namespace orrery::inline topologies
