#include "topologies/device_preset.hpp"

#include "sim/base/text.hpp"
#include "sim/config/yaml_tree.hpp"
#include "topologies/cluster_spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::topologies {

DeviceSpec read_device(const std::string& name, const DataDirectory& data) {
    const std::vector<std::string> names = data.names(kDevicePresets);
    const bool own = name.ends_with(".yaml");
    if (!own && std::find(names.begin(), names.end(), name) == names.end()) {
        const std::string near = nearest_name(name, names);
        throw ConfigError(
            fmt::format("unknown device '{}'{}", name, near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)),
            ErrorCode::unknown_name);
    }
    DeviceSpec spec;
    std::vector<Diagnostic> errors;
    // As a scenario that names it: a file may start from a preset.
    YamlNode named;
    named.kind = YamlNode::Kind::map;
    named.entries.push_back({"device", {}, {}});
    named.entries.back().value.kind = YamlNode::Kind::scalar;
    named.entries.back().value.scalar = name;
    read_fields(named, data, errors, [&](Fields& fields) {
        fields.section({"device", "", true}, kDevicePresets, [&](Fields& inner) { describe(inner, spec); });
    });
    throw_if_any(errors);
    return spec;
}

}  // namespace orrery::topologies
