#include "workloads/imports/serving_nodes.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace orrery::imports {

namespace {

// The text of a value, or of what has its source beside it; empty for anything else.
std::string value_of(const YamlNode* node) {
    if (node != nullptr && node->kind == YamlNode::Kind::map) {
        node = node->find("value");
    }
    return node != nullptr && node->kind == YamlNode::Kind::scalar ? node->scalar : "";
}

double bytes_of(const std::string& text) {
    double value = 0;
    std::string problem;
    return parse_quantity(text, Dimension::bytes, value, problem) ? value : 0;
}

std::string in_small_letters(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

}  // namespace

ServingNode serving_node(const std::string& name, const DataDirectory& data) {
    const PresetKind nodes{"node", "topologies/data/nodes"};
    const PresetKind devices{"device", "models/data/devices"};
    ServingNode out;
    out.name = name;
    const std::vector<std::string> known = data.names(nodes);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
        const std::string near = nearest_name(name, known);
        throw ConfigError(fmt::format("unknown node '{}'{}; 'orrery list nodes' shows them all", name,
                                      near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
                          ErrorCode::unknown_name);
    }
    const auto node = data.preset(nodes, name);
    double number = 0;
    if (parse_number(value_of(node->find("gpus")), number) && number >= 1) {
        out.gpus = static_cast<std::int64_t>(number);
    }
    const YamlNode* device = node->find("gpu");
    if (device != nullptr && device->kind == YamlNode::Kind::map && device->find("memory") != nullptr) {
        out.device = value_of(device->find("name"));
        out.memory = bytes_of(value_of(device->find("memory")));
        return out;
    }
    out.device = value_of(device != nullptr && device->kind == YamlNode::Kind::map ? device->find("preset") : device);
    if (const std::vector<std::string> presets = data.names(devices);
        std::find(presets.begin(), presets.end(), out.device) != presets.end()) {
        out.memory = bytes_of(value_of(data.preset(devices, out.device)->find("memory")));
    }
    return out;
}

std::string node_in_text(const std::string& text) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kDevices = {{{"h100", "dgx-h100"},
                                                                                         {"h200", "dgx-h200"},
                                                                                         {"b200", "dgx-b200"},
                                                                                         {"b300", "dgx-b300"},
                                                                                         {"a100", "dgx-a100-80g"},
                                                                                         {"h20", "hgx-h20"},
                                                                                         {"h800", "hgx-h800"},
                                                                                         {"gb200", "gb200-nvl72"},
                                                                                         {"gb300", "gb300-nvl72"},
                                                                                         {"mi300x", "mi300x-8"},
                                                                                         {"mi325x", "mi325x-8"},
                                                                                         {"mi355x", "mi355x-8"},
                                                                                         {"l40s", "l40s-4"}}};
    std::string found;
    const bool page = text.find("```") != std::string::npos;
    bool prose = page;
    for (const std::string_view line : split(std::string_view(text), '\n')) {
        prose = line.find("```") == std::string_view::npos ? prose : !prose;
        const std::size_t comment = line.find('#');
        const std::size_t behind_words = line.find(" #");
        const bool whole = prose || line.find("gpu.product") != std::string_view::npos ||
                           (comment != std::string_view::npos && line.find_first_not_of(" \t") == comment);
        const std::string said =
            in_small_letters(std::string(whole                                    ? line
                                         : behind_words != std::string_view::npos ? line.substr(behind_words)
                                                                                  : ""));
        for (std::size_t start = 0; start < said.size();) {
            std::size_t end = start;
            while (end < said.size() && std::isalnum(static_cast<unsigned char>(said[end])) != 0) {
                ++end;
            }
            std::string_view word = std::string_view(said).substr(start, end - start);
            const std::size_t times = word.find('x');  // 8xH200
            if (times != std::string_view::npos && times > 0 && word.find_first_not_of("0123456789") == times) {
                word.remove_prefix(times + 1);
            }
            for (const auto& [device, node] : kDevices) {
                if (word == device && !found.empty() && found != node) {
                    return "";
                }
                found = word == device ? std::string(node) : found;
            }
            start = end + 1;
        }
    }
    // Two boards have the name; one of them says its memory.
    const std::string small = in_small_letters(text);
    const bool more = small.find("141 g") != std::string::npos || small.find("141g") != std::string::npos ||
                      small.find("h20-3e") != std::string::npos;
    return found == "hgx-h20" && more ? "hgx-h20-141g" : found;
}

std::vector<std::string> usual_nodes(const std::vector<std::string>& words, const std::string& model) {
    if (std::any_of(words.begin(), words.end(), [](const std::string& word) {
            const std::string small = in_small_letters(word);
            return small.find("rocm") != std::string::npos || small.find("aiter") != std::string::npos;
        })) {
        return {"mi300x-8", "mi325x-8", "mi355x-8"};
    }
    const std::string name = in_small_letters(model);
    if (name.find("nvfp4") != std::string::npos || name.ends_with("-fp4")) {
        return {"dgx-b200", "dgx-b300", "dgx-h100", "dgx-h200"};
    }
    return {"dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300"};
}

}  // namespace orrery::imports
