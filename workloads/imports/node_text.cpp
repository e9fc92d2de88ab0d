#include "workloads/imports/node_text.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::imports {

namespace {

// Generations of NVLink by the links of a GPU: their rate each way, the preset that has them and its table of collectives.
struct Generation {
    const char* gpu;
    double links;
    double GBps;
    const char* collectives;
};
constexpr Generation kGenerations[] = {{"v100-sxm-32g", 6, 25, "nvlink3"}, {"a100-sxm-80g", 12, 25, "nvlink3"},
                                       {"h100-sxm", 18, 25, "nvlink4"},    {"h200-sxm", 18, 25, "nvlink4"},
                                       {"h20", 18, 25, "nvlink4"},         {"b200-sxm", 18, 50, "nvlink5"},
                                       {"b300-sxm", 18, 50, "nvlink5"},    {"gb200", 18, 50, "nvlink5"},
                                       {"gb300", 18, 50, "nvlink5"},       {"a100-sxm-40g", 12, 25, "nvlink3"}};

}  // namespace

std::vector<ImportOption> node_options() {
    return {{"device", "NAME", "the device, where the file does not tell it (orrery list devices)"},
            {"rate", "RATE", "rate of links that the file gives none for"}};
}

Imported node_scenario(const ImportInput& input, const NodeFacts& facts, const char* format, ImportNotes notes) {
    std::string gpu = input.option("device").empty() ? facts.gpu : input.option("device");
    const double links = facts.links * (facts.mesh ? static_cast<double>(facts.gpus) - 1 : 1);  // of a GPU
    const auto by_links = std::find_if(std::begin(kGenerations), std::end(kGenerations), [&](const Generation& row) {
        return gpu.empty() ? row.links == links : gpu == row.gpu;
    });
    if (gpu.empty() && facts.links > 0 && by_links != std::end(kGenerations)) {
        gpu = by_links->gpu;
        notes.assumed(
            fmt::format("devices of {}, which have {:.0f} NVLinks (--device NAME; orrery list devices)", gpu, links));
    }
    if (gpu.empty()) {
        throw ConfigError({Diagnostic{
            input.path(), 1, 1, "does not say what its GPUs are: --device NAME takes one of 'orrery list devices'",
            ErrorCode::malformed_trace}});
    }
    const bool nvlink = facts.links > 0;
    const bool known = by_links != std::end(kGenerations);
    const double each = known ? by_links->GBps : 25;
    const double slot = facts.pcie_GBps > 0 ? facts.pcie_GBps : 51;
    if (facts.pcie_GBps == 0) {
        notes.assumed("PCIe 5.0 x16 between a GPU and its NIC: 51 GB/s");
    }
    double nic = 0;
    std::string problem;
    if (const std::string rate = input.option("rate");
        !rate.empty() && (!parse_quantity(rate, Dimension::rate, nic, problem) || nic <= 0)) {
        throw ConfigError(fmt::format("--rate is a rate such as 400 Gbps, not '{}'", rate), ErrorCode::command_line);
    }
    if (nic == 0) {
        nic = facts.nic_gbps > 0 ? facts.nic_gbps * 1e9 / 8 : 400e9 / 8;
        if (facts.nic_gbps == 0 && facts.nics > 0) {
            notes.assumed("NICs of 400 Gb/s (--rate RATE)");
        }
    }
    Imported out;
    out.text = fmt::format(
        "# How long does an all-reduce of 64 MiB take inside this node? Written by 'orrery import {}'.\norrery: "
        "1\nkind: "
        "collective\ncluster:\n  nodes: 1\n  node:\n    name: imported\n    gpus: {}\n    gpu: {}\n    intra: {}\n    "
        "intra_bandwidth: "
        "{{value: {} GB/s, how: derived, source: \"{}\"}}\n    intra_latency: {{value: {} us, how: assumed, source: "
        "\"order of one "
        "{}\"}}\n    nics: {}\n    nic_bandwidth: {} Gbps\n    nic_latency: {{value: 2 us, how: assumed, source: "
        "\"order of an RDMA write "
        "through two NICs\"}}\n    pcie_bandwidth: {} GB/s\n    collectives: {}\ncollective: {{op: all-reduce, size: "
        "64 MiB}}\n",
        format, facts.gpus, gpu,
        facts.mesh ? "mesh"
        : nvlink   ? "nvswitch"
                   : "pcie",
        nvlink ? facts.links * each : slot,
        nvlink ? fmt::format("{}: {:.0f} NVLinks of {} GB/s{}", facts.source, facts.links, each,
                             facts.mesh ? " for each pair" : "")
               : facts.source + ": PCIe",
        nvlink ? 1 : 2,
        facts.mesh ? "NVLink hop"
        : nvlink   ? "NVLink hop with its switch"
                   : "round trip over PCIe",
        facts.nics, nic * 8 / 1e9, slot,
        nvlink      ? (known ? by_links->collectives : "nvlink4")
        : slot > 30 ? "pcie5"
                    : "pcie4");
    if (nvlink && !facts.mesh && !facts.switched && facts.gpus > 2) {
        notes.assumed("links of a GPU to all others, whichever of them it sends to, as through NVSwitch");
    }
    out.scenario = true;
    out.use = "'orrery run' as it is, or its 'node:' in another scenario";
    out.facts = {{"GPUs", std::to_string(facts.gpus)}, {"NICs", std::to_string(facts.nics)}};
    out.notes = std::move(notes);
    return out;
}

}  // namespace orrery::imports
