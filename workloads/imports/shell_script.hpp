#pragma once
// The commands of a shell script, or of the blocks of them in a page of Markdown, with their variables filled in.
//
// Understands quotes, comments, continued lines, pipes and lists of commands, redirections, here-documents, variables
// (plain, exported, `+=`, arrays), `${NAME:-default}` and its kin, whole numbers in `$((A * B))`, `if` with tests of
// text and numbers, `case`, and scripts inside of commands (`bash -c`, `eval`, `$(...)`). Bodies of loops are read once
// with the first word, bodies of functions once, with the arguments of their first call. Commands never run: what
// `$(command)` gives has no value here, and neither has a variable that only the environment sets.

#include "sim/base/namespaces.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery::imports {

/// A word of a command after expansion.
struct CommandWord {
    std::string text;
    std::size_t at = 0;  ///< bytes behind the start of the file
    std::string unset;   ///< the first variable or `$(...)` in it without a value, which stays in the text as written
};

struct CommandCall {
    std::int64_t copies = 1;               ///< that a manifest starts
    std::vector<CommandWord> environment;  ///< NAME=value before the command, and what was exported until then
    std::vector<CommandWord> words;
    std::vector<CommandWord>
        outer;  ///< of the command that gives it to a shell, as docker run IMAGE bash -c '...' does
};

struct CommandList {
    std::vector<CommandCall> commands;         ///< in order, without those of branches that are not taken
    std::map<std::string, std::string> files;  ///< that here-documents write
    std::vector<CommandWord> unused;           ///< values of variables that hold flags and that no command names
    std::vector<CommandWord> directives;       ///< words of #SBATCH lines
    std::vector<std::string> unsure;           ///< conditions that could not be decided and were taken as false
    std::vector<std::string> loops;            ///< what was taken of each, such as "n=1, the first of 3 in a loop"
};

/// `name` is the file, for messages; `given` what the environment sets, where parameters such as $1 are called "1". Throws
/// ConfigError where a quote does not end, where variables expand to more than 16 MiB, and where quotes and braces nest too deep.
[[nodiscard]] CommandList read_shell(const std::string& text, const std::string& name,
                                     const std::map<std::string, std::string>& given = {});

/// The words that a text gives without quotes around it: quotes at the start of a word hold it together.
[[nodiscard]] std::vector<CommandWord> split_words(const CommandWord& text);

}  // namespace orrery::imports
