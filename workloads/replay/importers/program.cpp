#include "workloads/replay/importers/program.hpp"

#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/replay/recorded_device.hpp"

#include <fmt/format.h>

#include <array>

namespace orrery::replay {

void set_recorded_on(ReplayTrace& trace, const std::string& name) {
    constexpr std::size_t kMostName = 100;
    if (!name.empty()) {
        trace.meta[kRecordedOn] = printable(name, kMostName);
    }
}

Imported imported_program(const ReplayTrace& trace, ImportNotes notes) {
    Imported out;
    out.text = format_replay(trace);
    out.use = "'kind: replay' and 'compute: {model: replay, trace: FILE}'";
    if (const auto device = trace.meta.find(kRecordedOn); device != trace.meta.end()) {
        const std::string preset = device_preset_of(device->second);
        out.use += preset.empty() ? fmt::format(
                                        "; where the cluster has another device than {}, 'replay: {{recorded_on: "
                                        "PRESET}}' prices its kernels there (orrery list devices)",
                                        device->second)
                                  : fmt::format(
                                        "; where the cluster has another device, 'replay: {{recorded_on: {}}}' prices "
                                        "its kernels there",
                                        preset);
    }
    std::array<std::size_t, 6> counts{};
    for (const ReplayOp& op : trace.ops) {
        ORRERY_ASSERT(static_cast<std::size_t>(op.kind) < counts.size());
        ++counts[static_cast<std::size_t>(op.kind)];
    }
    out.facts.push_back({"ranks", std::to_string(trace.ranks)});
    for (std::size_t kind = 0; kind < counts.size(); ++kind) {
        if (counts[kind] > 0) {
            out.facts.push_back({replay_kind_names()[kind], std::to_string(counts[kind])});
        }
    }
    if (trace.recorded_s >= 0) {
        out.facts.push_back({"recorded time", pretty_quantity(trace.recorded_s, Dimension::time)});
    }
    for (const auto& [key, value] : trace.meta) {
        out.facts.push_back({key, value});
    }
    out.notes = std::move(notes);
    return out;
}

}  // namespace orrery::replay
