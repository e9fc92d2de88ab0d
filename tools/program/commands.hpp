#pragma once
// The commands of the program, free of option parsing.

#include "sim/base/error.hpp"
#include "sim/config/fields.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery::terminal {
class Terminal;
}

namespace orrery::program {

struct CommandLine {
    std::string program;
    std::string command;
    std::vector<std::string> arguments;
    std::map<std::string, std::vector<std::string>> options;  ///< by long name; a switch that is given has no values

    [[nodiscard]] bool has(const std::string& name) const { return options.contains(name); }
    /// The last value given; empty when none is.
    [[nodiscard]] std::string text(const std::string& name) const;
    /// Every value given.
    [[nodiscard]] std::vector<std::string> values(const std::string& name) const;
    /// Every value, each split at commas.
    [[nodiscard]] std::vector<std::string> list(const std::string& name) const;
    /// Throws ConfigError when it is no whole number between the limits.
    [[nodiscard]] std::uint64_t whole(const std::string& name, std::uint64_t otherwise, std::uint64_t least,
                                      std::uint64_t most) const;
    /// The `--set` and `--seed` options as overrides.
    [[nodiscard]] std::vector<std::string> overrides() const;
    [[nodiscard]] bool quiet() const { return has("quiet"); }
    /// What --quiet, --color and --progress ask for. Throws ConfigError for other values than theirs.
    [[nodiscard]] Terminal terminal() const;
};

/// Runs a command; returns the exit code. Throws the errors of sim/base/error.hpp.
int run_command(const CommandLine& line);

/// Version of the program with its commit.
[[nodiscard]] std::string program_version();

// Commands with files of their own; each returns the exit code.
int command_help(const CommandLine& line, const DataDirectory& data);
int command_export(const CommandLine& line, const DataDirectory& data);
int command_init(const CommandLine& line, const DataDirectory& data);
int command_list(const CommandLine& line, const DataDirectory& data);
int command_import(const CommandLine& line, const DataDirectory& data);
int command_capacity(const CommandLine& line, const DataDirectory& data);
int command_check(const CommandLine& line, const DataDirectory& data);
int command_compare(const CommandLine& line, const DataDirectory& data);
int command_diff(const CommandLine& line, const DataDirectory& data);
int command_explain(const CommandLine& line, const DataDirectory& data);
int command_plan(const CommandLine& line, const DataDirectory& data);
int command_recommend(const CommandLine& line, const DataDirectory& data);
int command_plot(const CommandLine& line, const DataDirectory& data);
int command_sweep(const CommandLine& line, const DataDirectory& data);
int command_table_of(const CommandLine& line, const DataDirectory& data);
int command_mcp(const CommandLine& line, const DataDirectory& data);
int command_emulate(const CommandLine& line, const DataDirectory& data);
int command_serve(const CommandLine& line, const DataDirectory& data);
int command_merge(const CommandLine& line, const DataDirectory& data);
int command_price(const CommandLine& line, const DataDirectory& data);
int price_layer(const CommandLine& line, const DataDirectory& data);  ///< its first argument is "layer"
int command_calibrate(const CommandLine& line, const DataDirectory& data);

}  // namespace orrery::program

namespace orrery::validation {
/// The one command from above: validation/validate_command.cpp runs it, and this folder includes nothing of validation.
int command_validate(const CommandLine& line, const DataDirectory& data);
}  // namespace orrery::validation
