// Network files of ASTRA-sim's analytical backend (YAML) as a fabric: dimensions with a topology, a size, a rate and a latency each.
//
// Source: astra-network-analytical, common/NetworkParser: topology (Ring, FullyConnected, Switch), npus_count, bandwidth in "GB/s",
// of 2^30 B as its bw_GBps_to_Bpns counts, and latency in ns, of each link. The first dimension is the innermost.

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"
#include "workloads/imports/config_text.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery::imports {

namespace {

constexpr std::size_t kMostDimensions = 8;
constexpr double kMostNpus = 1e6;

class NetworkFile {
  public:
    NetworkFile(const YamlNode& tree, const std::string& file) : file_(file) {
        for (const char* key : {"topology", "npus_count", "bandwidth", "latency"}) {
            const YamlNode* node = tree.kind == YamlNode::Kind::map ? tree.find(key) : nullptr;
            if (node == nullptr || node->kind != YamlNode::Kind::sequence) {
                Mark mark = node != nullptr ? node->mark : tree.mark;
                mark.line = std::max(1, mark.line);
                mark.column = std::max(1, mark.column);
                throw ConfigError(
                    {mark.error(fmt::format("expected the list '{}' of ASTRA-sim's analytical network (topology, "
                                            "npus_count, bandwidth, latency), and found {}",
                                            key, node != nullptr ? "a single value" : "none"),
                                ErrorCode::malformed_trace)});
            }
            lists_[count_++] = node;
        }
        for (const YamlNode* list : lists_) {
            if (list->items.size() != lists_[0]->items.size() || list->items.empty() ||
                list->items.size() > kMostDimensions) {
                throw ConfigError({list->mark.error(
                    fmt::format("expected one entry for each dimension (1 to {}), and found {} beside {} topologies",
                                kMostDimensions, list->items.size(), lists_[0]->items.size()),
                    ErrorCode::malformed_trace)});
            }
        }
    }

    [[nodiscard]] std::size_t dimensions() const { return lists_[0]->items.size(); }
    [[nodiscard]] std::string kind(std::size_t i) const {
        const YamlNode& item = lists_[0]->items[i];
        if (item.scalar == "Ring") {
            return "ring";
        }
        if (item.scalar == "FullyConnected") {
            return "fully-connected";
        }
        if (item.scalar == "Switch") {
            return "switch";
        }
        throw ConfigError({item.mark.error(
            fmt::format("expected a topology Ring, FullyConnected or Switch, and found '{}'", item.scalar),
            ErrorCode::malformed_trace)});
    }
    [[nodiscard]] std::int64_t size(std::size_t i) const {
        return static_cast<std::int64_t>(number(1, i, 1, kMostNpus, true));
    }
    [[nodiscard]] double bandwidth(std::size_t i) const { return number(2, i, 1e-6, 1e6, false); }
    [[nodiscard]] double latency(std::size_t i) const { return number(3, i, 0, 1e9, false); }

  private:
    [[nodiscard]] double number(std::size_t list, std::size_t i, double least, double most, bool whole) const {
        const YamlNode& item = lists_[list]->items[i];
        double value = 0;
        if (!parse_number(item.scalar, value) || value < least || value > most ||
            (whole && value != std::floor(value))) {
            throw ConfigError({item.mark.error(fmt::format("expected a {}number from {:g} to {:g}, and found '{}'",
                                                           whole ? "whole " : "", least, most, item.scalar),
                                               ErrorCode::malformed_trace)});
        }
        return value;
    }

    std::string file_;
    std::array<const YamlNode*, 4> lists_{};
    std::size_t count_ = 0;
};

Imported read_network(const ImportInput& input) {
    const YamlNode tree = expected_yaml(
        input.bytes(), input.path(), "'topology', 'npus_count', 'bandwidth' and 'latency' of a network of ASTRA-sim");
    const NetworkFile file(tree, input.path());
    Imported out;
    double hosts = 1;
    std::string levels;
    for (std::size_t i = 0; i < file.dimensions(); ++i) {
        const std::int64_t size = file.size(i);
        hosts *= static_cast<double>(size);
        levels += fmt::format("      - {{kind: {}, size: {}, link: {} MiB/s, latency: {} ns}}\n", file.kind(i), size,
                              file.bandwidth(i) * 1024, file.latency(i));
    }
    if (hosts < 2 || hosts > kMostNpus) {
        throw ConfigError({Diagnostic{
            input.path(), 1, 1, fmt::format("expected 2 to {:.0f} NPUs in all, and found {:.0f}", kMostNpus, hosts),
            ErrorCode::malformed_trace}});
    }
    out.text = fmt::format(
        "# How long does an all-reduce of 64 MiB take on this ASTRA-sim network? Written by 'orrery import "
        "astra-network'.\n"
        "orrery: 1\nkind: collective\ncluster:\n  hosts: {:.0f}\n  fabric:\n    kind: multi-level\n    "
        "levels:\n{}collective: {{op: "
        "all-reduce, algorithm: ring, size: 64 MiB}}\n",
        hosts, levels);
    out.scenario = true;
    out.use = "'orrery run' as it is, or its 'cluster:' in another scenario";
    out.facts = {{"NPUs", fmt::format("{:.0f}", hosts)}};
    out.notes.read("dimensions", file.dimensions());
    out.notes.assumed("GB/s of 2^30 B, as ASTRA-sim counts them");
    for (const YamlNode::Entry& entry : tree.entries) {
        if (entry.key != "topology" && entry.key != "npus_count" && entry.key != "bandwidth" &&
            entry.key != "latency") {
            out.notes.left_out("not understood: " + entry.key);
        }
    }
    return out;
}

}  // namespace

extern const Importer kAstraNetworkImporter = {
    "astra-network", "a network file of ASTRA-sim's analytical backend (YAML), as a fabric", {}, read_network, "yaml"};

}  // namespace orrery::imports
