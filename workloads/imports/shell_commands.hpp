#pragma once
// The commands of a shell script, or of the blocks of them in a page of Markdown, with the words that each is given.
//
// Understands quotes, comments, lines that go on, pipes and lists of commands, redirections, here-documents, arrays, and variables
// that the text sets (`NAME=value`, `NAME=(a b)`, `export`, `$NAME`, `${NAME}`, `${NAME:-value}`, `"${NAME[@]}"`), and whole
// numbers in `$((...))`. Of a loop over words its first turn is read. Not a shell: conditions and the output of commands are not
// evaluated, and a `$(...)` stays as it stands.

#include "workloads/imports/importer.hpp"

#include <map>
#include <string>
#include <vector>

namespace orrery::imports {

struct CommandWord {
    std::string text;
    std::size_t at = 0;  ///< bytes behind the start of the script
    std::string unset;   ///< the first variable in it that has no value; it stands in the text as written
};

struct CommandCall {
    std::int64_t copies = 1;               ///< that a manifest starts
    std::vector<CommandWord> environment;  ///< NAME=value before the command, and what was exported until then
    std::vector<CommandWord> words;
};

struct CommandList {
    std::vector<CommandCall> commands;
    std::map<std::string, std::string> files;  ///< that here-documents write
    std::vector<std::string> loops;            ///< what was taken of each, such as "n=1, the first of 3 in a loop"
};

/// `name` is the file, for messages. Throws ConfigError where a quote does not end, and where variables expand to more than 16 MiB.
[[nodiscard]] CommandList read_shell(const std::string& text, const std::string& name);

}  // namespace orrery::imports
