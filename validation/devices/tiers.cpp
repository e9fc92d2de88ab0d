// Memories of a node: rates of PCIe, drives, DRAM and CXL.

#include "sim/record/facts_table.hpp"
#include "validation/devices/devices.hpp"
#include "validation/devices/lone_node.hpp"

#include <fmt/format.h>

namespace orrery::validation {

namespace {

// The host of a row, which a preset or the row's own figures describe.
NodeHost host_of(const FactsRow& row, const DataDirectory& data) {
    NodeHost host;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data.path(kHostPresets, row.text("host"))), data, errors,
                [&](Fields& fields) { describe(fields, host); });
    throw_if_any(errors);
    return host;
}

// Seconds of a copy of so many bytes, its steps one after another, or of reads and writes by the processor at once.
double seconds_of(const NodeHost& host, const FactsRow& row) {
    LoneNode node(host, 1, host.pcie.rate());
    const NodeMemory& memory = node.memory();
    const std::size_t tier = host.find(row.text("tier"));
    const double bytes = row.number("gigabytes") * 1e9;
    const std::string& what = row.text("what");
    std::vector<NodeMemory::Hop> steps;
    if (what == "to device") {
        steps = memory.fetch(GpuId(0), tier);
    } else if (what == "from device") {
        steps = memory.store(GpuId(0), tier);
    } else if (what == "to dram") {
        steps.push_back(memory.load(GpuId(0), tier));
    } else if (what == "from dram") {
        steps.push_back(memory.write_back(GpuId(0), tier));
    } else {
        const double reads = row.number("reads");
        steps.push_back(NodeMemory::Hop{memory.update(GpuId(0), {{tier, reads, 1 - reads}}), 0});
    }
    return node.seconds({steps}, host.tiers[tier].whole(bytes));
}

}  // namespace

void compare_tiers(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    std::vector<std::vector<std::string>> table;
    for (const FactsRow& row : read_facts_table(data.path("validation/devices/tiers.csv"))) {
        const double bytes = row.number("gigabytes") * 1e9;
        const double measured = row.number("measured_gbps");
        const double predicted = bytes / seconds_of(host_of(row, data), row) * 1e-9;
        const bool scored = row.text("use") == "score";
        const std::string label =
            fmt::format("{} {} {} {}", row.text("host"), row.text("tier"), row.text("what"), row.text("reads"));
        if (scored) {
            out.score("tiers", label, measured, predicted);
        }
        table.push_back({label, fmt::format("{:.1f} GB/s", measured), fmt::format("{:.1f} GB/s", predicted),
                         fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)),
                         scored ? "scored" : "gave a constant"});
    }
    out.table(terminal, "memories of a node", {"copy", "measured", "predicted", "error", ""}, std::move(table));
}

}  // namespace orrery::validation
