// orrery help: what a command does, what a kind of scenario may say, and the whole reference.

#include "sim/base/text.hpp"
#include "sim/record/metric_table.hpp"
#include "tools/program/command_line.hpp"
#include "tools/program/commands.hpp"
#include "tools/reference/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace orrery::program {

namespace {

// Of a command or an error; the nearest name of a command or a metric where there is neither.
std::string help_of(const std::string& topic) {
    try {
        return help_text(topic);
    } catch (const ConfigError& error) {
        std::vector<std::string> names;
        for (const MetricRow& row : metric_table()) {
            names.emplace_back(row.name);
        }
        const std::string nearest = nearest_name(topic, names);
        if (nearest.empty() || std::string_view(error.what()).find("did you mean") != std::string_view::npos) {
            throw;
        }
        throw ConfigError(
            fmt::format("unknown topic '{}' (did you mean '{}'?); see 'orrery list metrics'", topic, nearest),
            ErrorCode::unknown_name);
    }
}

}  // namespace

int command_help(const CommandLine& line, const DataDirectory& data) {
    const std::string topic = line.arguments.empty() ? "" : line.arguments[0];
    const std::vector<std::string> kinds = reference_kinds();
    const bool is_kind = std::find(kinds.begin(), kinds.end(), topic) != kinds.end();
    if (topic == "reference") {
        fmt::print("{}", reference_markdown(data));
    } else if (line.arguments.size() > 1 && !is_kind) {
        throw ConfigError(
            fmt::format("'{}' has no keys; 'orrery help KIND KEY' is for {}", topic, fmt::join(kinds, ", ")),
            ErrorCode::unknown_name);
    } else if (is_kind && (line.arguments.size() > 1 || !is_command(topic))) {
        fmt::print("{}", help_of_key(topic, line.arguments.size() > 1 ? line.arguments[1] : "", data));
    } else if (const MetricRow* row = row_of_metric(topic); row != nullptr && !is_command(topic)) {
        const std::string better = better_text(topic);
        fmt::print("{} (unit {}{}): {}\n", row->name, row->unit, better.empty() ? "" : ", " + better, row->meaning);
    } else {
        fmt::print("{}", help_of(topic));
    }
    return 0;
}

}  // namespace orrery::program
