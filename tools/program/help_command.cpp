// orrery help: what a command does, what a kind of scenario may say, and the whole reference.

#include "tools/program/command_line.hpp"
#include "tools/program/commands.hpp"
#include "tools/reference/reference.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::inline program {

int command_help(const CommandLine& line, const DataDirectory& data) {
    const std::string topic = line.arguments.empty() ? "" : line.arguments[0];
    const std::vector<std::string> kinds = reference_kinds();
    const bool is_kind = std::find(kinds.begin(), kinds.end(), topic) != kinds.end();
    if (topic == "reference") {
        fmt::print("{}", reference_markdown(data));
    } else if (line.arguments.size() > 1 && !is_kind) {
        throw ConfigError(
            fmt::format("'{}' has no keys; 'orrery help KIND KEY' is for {}", topic, fmt::join(kinds, ", ")));
    } else if (is_kind && (line.arguments.size() > 1 || !is_command(topic))) {
        fmt::print("{}", help_of_key(topic, line.arguments.size() > 1 ? line.arguments[1] : "", data));
    } else {
        fmt::print("{}", help_text(topic));
    }
    return 0;
}

}  // namespace orrery::inline program
