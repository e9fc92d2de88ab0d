// orrery import: other tools' traces to replay traces.

#include "tools/program/commands.hpp"

#include "sim/config/units.hpp"
#include "sim/record/summary.hpp"
#include "tools/program/terminal.hpp"
#include "workloads/replay/importers/importer.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>

namespace orrery {

int command_import(const CommandLine& line, const DataDirectory&) {
    const std::string& file = line.arguments[1];
    const ReplayTrace trace = import_trace(line.arguments[0], file);
    const std::string out =
        line.has("output") ? line.text("output") : std::filesystem::path(file).stem().string() + ".replay";
    write_file(out, format_replay(trace));
    if (line.quiet()) {
        return 0;
    }
    std::array<std::size_t, 6> counts{};
    for (const ReplayOp& op : trace.ops) {
        ++counts[static_cast<std::size_t>(op.kind)];
    }
    std::vector<std::vector<std::string>> rows = {{"ranks", std::to_string(trace.ranks)}};
    for (std::size_t kind = 0; kind < counts.size(); ++kind) {
        if (counts[kind] > 0) {
            rows.push_back({replay_kind_names()[kind], std::to_string(counts[kind])});
        }
    }
    if (trace.recorded_s >= 0) {
        rows.push_back({"recorded time", pretty_quantity(trace.recorded_s, Dimension::time)});
    }
    for (const auto& [key, value] : trace.meta) {
        rows.push_back({key, value});
    }
    const Terminal terminal(line.color(), line.quiet());
    terminal.heading(out);
    terminal.table({}, rows);
    fmt::print("replay it with a scenario of 'kind: replay' and 'compute: {{model: replay, trace: {}}}'\n", out);
    return 0;
}

}  // namespace orrery
