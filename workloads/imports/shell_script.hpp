#pragma once
// The commands of a shell script with their variables filled in, as far as a launch script needs it.
//
// Understands quotes, comments, lines that go on, variables (plain, exported, `+=`, arrays), `${NAME:-default}` and its kin,
// arithmetic `$((A * B))`, `if` with tests of text and numbers, and `case`. Bodies of loops and functions are read once. Commands
// are never run: what `$(command)` would give is unknown, and so is a variable that only the environment sets.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery::imports {

/// A word of a command after expansion.
struct ShellWord {
    std::string text;
    std::size_t at = 0;  ///< bytes behind the start of the script
    /// The first variable or command in it whose value the script does not say; a word of nothing else has it for its text.
    std::string unknown;
};
using ShellCommand = std::vector<ShellWord>;

struct ShellScript {
    std::vector<ShellCommand> commands;  ///< in order, those of branches that are not taken left out
    ShellCommand unused;                 ///< words of variables that hold flags and that no command names
    ShellCommand directives;             ///< words of #SBATCH lines
    std::vector<std::string> unsure;     ///< conditions that could not be decided and were taken as false
};

/// Throws ConfigError where variables expand to more than 16 MiB, or quotes and braces nest too deep. `name` is the file, `given` what
/// the environment sets; parameters such as $1 are called "1".
[[nodiscard]] ShellScript read_shell_script(const std::string& text, const std::string& name,
                                            const std::map<std::string, std::string>& given = {});

}  // namespace orrery::imports
