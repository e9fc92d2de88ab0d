#include "tools/check/inputs.hpp"

#include "sim/base/random.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace orrery {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTable = "table ";

void flatten(const Json& json, const std::string& path, std::map<std::string, std::string>& out) {
    if (json.is_array() && !json.empty() && json[0].is_object()) {
        for (std::size_t i = 0; i < json.size(); ++i) {
            flatten(json[i], fmt::format("{}.{}", path, json[i].value("name", std::to_string(i))), out);
        }
        return;
    }
    if (!json.is_object()) {
        out[path] = json.dump();
        return;
    }
    const bool sourced = json.contains("value") && json.contains("how");
    for (const auto& [key, value] : json.items()) {
        // Where a value comes from and what a thing is called decide nothing.
        if (!(sourced && key != "value") && key != "name") {
            flatten(value, path.empty() ? key : fmt::format("{}.{}", path, key), out);
        }
    }
}

std::string hash_of_file(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    return fmt::format("\"{:016x}\"", mix64(hash64(text.str())));
}

}  // namespace

std::map<std::string, std::string> inputs_of(const Scenario& scenario, const DataDirectory& data) {
    std::map<std::string, std::string> out;
    flatten(Json::parse(resolved_json(scenario)), "", out);
    // Tables that the device names (a folder or file of that name), and those of collectives, which all scenarios share.
    const DeviceSpec& gpu = scenario.cluster.node.gpu;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(data.path("models/data"))) {
        const std::filesystem::path relative = std::filesystem::relative(entry.path(), data.root());
        const auto names = [&](const std::string& name) {
            return !name.empty() && std::any_of(relative.begin(), relative.end(),
                                                [&](const std::filesystem::path& part) { return part.stem() == name; });
        };
        if (entry.is_regular_file() && relative.parent_path().filename() != "devices" &&
            (names("collectives") || names(gpu.kernels) || names(gpu.attention_kernels))) {
            out[kTable + relative.string()] = hash_of_file(entry.path());
        }
    }
    return out;
}

std::vector<ChangedInput> changes_between(const std::map<std::string, std::string>& before,
                                          const std::map<std::string, std::string>& after) {
    std::vector<ChangedInput> out;
    for (const auto& [path, value] : before) {
        const auto now = after.find(path);
        if (now == after.end() || now->second != value) {
            out.push_back({path, value, now == after.end() ? "" : now->second});
        }
    }
    for (const auto& [path, value] : after) {
        if (!before.contains(path)) {
            out.push_back({path, "", value});
        }
    }
    return out;
}

std::optional<Scenario> with_reverted(const Scenario& scenario, const ChangedInput& change, const DataDirectory& data) {
    if (change.path.rfind(kTable, 0) == 0 || change.before.empty() || change.after.empty()) {
        return std::nullopt;
    }
    YamlNode tree = parse_yaml(resolved_json(scenario), scenario.name);
    apply_override(tree, change.path + "=" + change.before);
    try {
        return read_scenario(tree, scenario.name, data);
    } catch (const ConfigError&) {
        return std::nullopt;  // what it was is no longer understood
    }
}

std::string pretty_input(const std::string& json) {
    if (json.empty()) {
        return "absent";
    }
    const Json value = Json::parse(json);
    if (!value.is_string()) {
        return value.dump();
    }
    const std::string text = value.get<std::string>();
    double number = 0;
    std::string problem;
    for (const Dimension dimension : {Dimension::time, Dimension::bytes, Dimension::rate, Dimension::flops,
                                      Dimension::frequency, Dimension::power}) {
        if (parse_quantity(text, dimension, number, problem) && number != 0) {
            return pretty_quantity(number, dimension);
        }
    }
    return text;
}

}  // namespace orrery
