#include "tools/check/inputs.hpp"
#include "topologies/device_preset.hpp"

#include "models/calibrated.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/random.hpp"
#include "sim/config/units.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/kinds/cluster.hpp"
#include "tools/driver/kinds/replay.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

namespace orrery::check {

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

std::string hash_of_file(const std::string& path) {
    return fmt::format("\"{:016x}\"", mix64(hash64(bytes_of_input(path))));
}

}  // namespace

// Files of tables that a run of the scenario reads.
static std::set<std::string> tables_of(const Scenario& scenario, const DataDirectory& data) {
    std::set<std::string> out;
    const std::vector<const JobSpec*> jobs = jobs_of(scenario);
    for (const JobSpec* job : jobs) {
        out.merge(tables_of(job->scenario, data));
    }
    if (!jobs.empty()) {
        return out;
    }
    const auto* training = scenario.find<TrainingKind>();
    const auto* serving = scenario.find<ServingKind>();
    const bool calibrated = (training != nullptr && training->compute == ComputeKind::calibrated) ||
                            (serving != nullptr && serving->compute == ComputeKind::calibrated);
    if (calibrated) {
        std::vector<const DeviceSpec*> devices = {&scenario.cluster.node.gpu};
        for (const GroupSpec& group : scenario.cluster.groups) {
            devices.push_back(&group.node.gpu);
        }
        Scenario asked = scenario;
        const std::vector<DeviceSpec*> own = asked.own->own_devices();
        devices.insert(devices.end(), own.begin(), own.end());
        for (const DeviceSpec* device : devices) {
            for (std::string& file :
                 kernel_files(*device, data, serving != nullptr ? serving->engine.software.kernels : KernelSets())) {
                out.insert(std::move(file));
            }
        }
    }
    const auto* replay = scenario.find<RecordKind>();
    if (const std::string recorded = replay != nullptr ? replay->replay.recorded_on : ""; !recorded.empty()) {
        out.insert(data.path("models/data/devices/" + recorded + ".yaml"));
        for (const DeviceSpec& device : {read_device(recorded, data), scenario.cluster.node.gpu}) {
            for (std::string& file : kernel_files(device, data, {})) {
                out.insert(std::move(file));
            }
        }
    }
    if (scenario.kind().network.library && scenario.network.collectives != LibraryKind::ideal) {
        const auto add = [&](const NodeSpec& node) {
            out.insert(data.path("models/data/collectives/between/" + node.between + ".yaml"));
            out.insert(data.path("models/data/collectives/" + node.collectives + ".fit"));
        };
        add(scenario.cluster.node);
        for (const GroupSpec& group : scenario.cluster.groups) {
            add(group.node);
        }
    }
    return out;
}

std::map<std::string, std::string> inputs_of(const Scenario& scenario, const DataDirectory& data) {
    std::map<std::string, std::string> out;
    flatten(Json::parse(resolved_json(scenario)), "", out);
    for (const std::string& path : tables_of(scenario, data)) {
        out[kTable + std::filesystem::relative(path, data.root()).string()] = hash_of_file(path);
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

bool is_read_no_more(const ChangedInput& change, const DataDirectory& data) {
    return change.path.rfind(kTable, 0) == 0 && change.after.empty() &&
           std::filesystem::exists(data.path(change.path.substr(std::string(kTable).size())));
}

static void remove_at(YamlNode& node, const std::string& path) {
    const std::size_t dot = path.find('.');
    const std::string key = path.substr(0, dot);
    if (dot == std::string::npos) {
        std::erase_if(node.entries, [&](const YamlNode::Entry& entry) { return entry.key == key; });
        return;
    }
    for (YamlNode::Entry& entry : node.entries) {
        if (entry.key == key) {
            remove_at(entry.value, path.substr(dot + 1));
        }
    }
}

std::optional<Scenario> with_reverted(const Scenario& scenario, const ChangedInput& change, const DataDirectory& data) {
    if (change.path.rfind(kTable, 0) == 0) {
        return std::nullopt;
    }
    YamlNode tree = parse_yaml(resolved_json(scenario), scenario.name);
    if (change.before.empty()) {
        remove_at(tree, change.path);  // what is not written is as by default
    } else {
        apply_override(tree, change.path + "=" + change.before);
    }
    try {
        return read_scenario(tree, scenario.name, data);
    } catch (const ConfigError&) {
        return std::nullopt;  // what it was is no longer understood
    }
}

std::string pretty_input(const std::string& json) {
    if (json.empty()) {
        return "default";
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

}  // namespace orrery::check
