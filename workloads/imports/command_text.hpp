#pragma once
// A command line with its flags, as it stands in a shell script (shell_script.hpp): shared by importers of other tools' arguments.
// Flags are read as `--flag value` and `--flag=value`.

#include "workloads/imports/importer.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace orrery::imports {

/// Flags of a tool that are understood and leave the scenario as it is, for one reason.
struct FlagGroup {
    bool without_effect;  ///< on time and memory; else the effect is not modelled
    const char* why;      ///< completes "no effect on time or memory: " or "not modelled: "
    const char* flags;    ///< without dashes, by spaces
};

class CommandText {
  public:
    /// The command with most flags of a script, with variables, arrays and branches filled in. Every word
    /// behind a flag is a value of it. `given`: "NAME=VALUE ..." for variables that the environment sets, and "1=VALUE" for $1.
    [[nodiscard]] static CommandText of_script(const std::string& text, std::string name,
                                               const std::string& given = "");
    /// Flags that are made of another file: their names, values and places in its text.
    struct Flag {
        std::string name;
        std::vector<std::string> values;
        std::size_t at = 0;
    };
    [[nodiscard]] static CommandText of_flags(const std::vector<Flag>& flags, const std::string& text,
                                              std::string name);
    /// Names flags that stand for one of these groups alone by its whole name, as argparse does.
    void complete(const std::vector<FlagGroup>& groups);

    [[nodiscard]] bool has(const std::string& flag);
    /// The value of the first of these flags that is given; empty when none is. Flags are without dashes, `-` and `_` alike.
    [[nodiscard]] std::string text(const std::vector<std::string>& flags);
    /// The same as a whole number from 1 to `most`. Throws ConfigError for anything else.
    [[nodiscard]] std::optional<std::int64_t> whole(const std::vector<std::string>& flags, double most = 1e12);
    /// The same as a degree of a plan, from 1 to 65,536 (the product of three is a whole number still); 1 where it is not given.
    [[nodiscard]] std::int64_t degree(const std::vector<std::string>& flags);
    /// Words that are neither flags nor values of flags, such as the program and its model.
    [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
    /// Something wrong with the first of these flags that is given, at its place; without one at the start of the file.
    [[nodiscard]] Diagnostic error(const std::vector<std::string>& flags, const std::string& problem) const;
    /// All values of a flag, with brackets, quotes and commas of a list taken off; empty when it is not given.
    [[nodiscard]] std::vector<std::string> values(const std::string& flag);
    /// Counts a flag as left out after all.
    void forget(const std::string& flag) { used_.erase(flag); }
    /// Counts what was asked for as read, and every other flag by its name as left out.
    void count(ImportNotes& notes) const;
    /// The same with reasons: what none of the groups names is not understood.
    void count(ImportNotes& notes, const std::vector<FlagGroup>& groups) const;

  private:
    CommandText() = default;
    std::string name_;
    std::string text_;
    std::map<std::string, std::string> flags_;
    std::map<std::string, std::size_t> places_;               ///< of flags, in bytes behind the start of the text
    std::map<std::string, std::vector<std::string>> values_;  ///< of flags of a script
    std::vector<std::string> unsure_;                         ///< conditions and loops of a script
    std::vector<std::string> words_;
    std::set<std::string> used_;
};

/// Notes the names of flags or keys that are left out, by the number of their group from 1 on; 0: not understood.
void name_left_out(ImportNotes& notes, const std::vector<FlagGroup>& groups,
                   const std::map<std::size_t, std::vector<std::string>>& by_group);

/// A number as a YAML value; empty where there is none.
[[nodiscard]] std::string yaml_number(const std::optional<std::int64_t>& value);
/// "  key: value" lines of YAML in the order given; empty values are left out.
using YamlLines = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] std::string yaml_section(const std::string& section, const YamlLines& lines);

}  // namespace orrery::imports
