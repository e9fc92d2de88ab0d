#pragma once
// What a search found, as words of a command line and as a scenario.

#include "sim/config/data_directory.hpp"
#include "tools/program/command_line.hpp"
#include "tools/program/commands.hpp"

#include <string>
#include <vector>

namespace orrery::program {

/// " --set a=b ...": the user's own assignments that `assignments` leaves as they are, and those.
[[nodiscard]] std::string set_words(const CommandLine& line, const std::vector<std::string>& assignments);

/// Writes the scenario of the command line with its overrides, less the keys `without`, and with `assignments`, as --output says; `found` is a
/// comment at its head. Throws ConfigError where the scenario comes from standard input, or names files that the new one would not find.
void write_best_scenario(const CommandLine& line, const DataDirectory& data, const std::vector<std::string>& without,
                         const std::vector<std::string>& assignments, const std::string& found);
/// The same mistakes, before a search.
void check_best_scenario(const CommandLine& line, const std::vector<std::string>& files);

}  // namespace orrery::program
