#pragma once
// What the program understands: one table of commands and options from which help, completion and the manual page are
// made and against which a command line is checked.

#include "sim/base/error.hpp"

#include <string>
#include <vector>

namespace orrery::program {

struct OptionSpec {
    const char* name;      ///< without dashes; "jobs,j" has a short form
    const char* argument;  ///< what it takes, for people; empty: a switch
    std::string help;
    bool repeats = false;
    bool writes = false;     ///< names a file or folder that the command makes
    const char* names = "";  ///< topic of `orrery list` that its values are of, for completions
};

/// What an argument may be.
struct ChoiceSpec {
    const char* name;
    const char* help;
};

struct CommandSpec {
    const char* name;
    const char* arguments;  ///< such as "FILE" or "[SUITE]"; TARGET is written, KIND, FORMAT and the like are no files
    std::size_t min_arguments;
    std::size_t max_arguments;
    const char* help;
    std::vector<OptionSpec> options;
    std::vector<const char*> examples;
    std::vector<ChoiceSpec> choices = {};  ///< of the first argument, where it is one of a table
    const char* second = "";               ///< topic of `orrery list` that the second argument is of, for completions
};

[[nodiscard]] const std::vector<CommandSpec>& command_table();
/// The charts of `orrery plot`: three of a scenario, then those of a database.
[[nodiscard]] const std::vector<ChoiceSpec>& plot_kinds();
/// Options that every command takes.
[[nodiscard]] const std::vector<OptionSpec>& common_options();

/// The error for a name that is no command, with the nearest one that is.
[[nodiscard]] ConfigError unknown_command(const std::string& name);
/// Whether a command has this name.
[[nodiscard]] bool is_command(const std::string& name);
/// Help of one command, or of all (empty). Throws ConfigError for a name that is no command.
[[nodiscard]] std::string help_text(const std::string& command);
/// A completion script for bash or zsh.
[[nodiscard]] std::string completion_script(const std::string& shell);
/// The manual page, in roff.
[[nodiscard]] std::string manual_page(const std::string& version);

}  // namespace orrery::program
