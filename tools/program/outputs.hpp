#pragma once
// What a command line writes is none of what it reads, nothing twice, and no file that another program or a person wrote.

#include "tools/program/command_line.hpp"
#include "tools/program/commands.hpp"

namespace orrery::program {

/// Throws ConfigError when a file that the command line names as an output is one that it names as an input, one of `inputs`
/// (which the inputs name in turn), one that was read so far, another output, or cannot be written; or when it exists and this
/// program did not write it. Files are compared by what they are, so that links and different spellings of a path do not help.
/// With --force, only two outputs in one file and what cannot be written are refused.
void check_outputs(const CommandLine& line, const std::vector<std::string>& inputs = {});

/// Writes the file that an option names ("-" without it), checked again: by now everything has been read, and what exists
/// must be an output of the same kind.
void write_output(const CommandLine& line, const std::string& option, const std::string& text);
/// The same for a file that no option names. `what`: how an error calls it, such as "the fit".
void write_output(const CommandLine& line, const std::string& what, const std::string& path, const std::string& text);
/// Throws ConfigError when a file exists and has text, whoever wrote it; not with --force.
void require_new(const CommandLine& line, const std::string& what, const std::string& path);

/// What tells an output of this program from other files, by how its text starts: outputs of one kind have one mark. Empty: none.
[[nodiscard]] std::string mark_of_output(std::string_view start);

}  // namespace orrery::program
