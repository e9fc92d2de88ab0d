#pragma once
// What the flags of other tools mean here, one row each, and a command line read by them.
//
// Tables lie in workloads/data/flags, a file a tool. A row says which key of a scenario a flag sets, or that it changes neither time
// nor memory and why, or that it does and is not modelled. Keys that start with 'engine.' are those of scenarios; the others name what an importer
// makes keys of, so that flags of several tools that mean the same share a key. Flags are found as argparse finds them: `-` and `_`
// alike, `--flag=value`, `--no-flag`, beginnings of names that only one flag has, and `--flag.part value` for parts of a JSON value.

#include "sim/config/data_directory.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/imports/shell_script.hpp"

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::imports {

/// What a flag takes: nothing; nothing or true or false; one word; any number of words; JSON.
enum class FlagValue { none, boolean, word, words, json };
/// What a flag does: sets a key; nothing to time and memory; something that is not modelled.
enum class FlagEffect { key, none, not_modelled };

struct FlagRow {
    std::vector<std::string> names;  ///< without dashes; of environment variables in capitals
    FlagValue value = FlagValue::word;
    FlagEffect effect = FlagEffect::none;
    std::string key;
    std::string meaning;  ///< why it has no effect, or what is lost
};

class FlagTable {
  public:
    /// The tables workloads/data/flags/NAME.csv, of which the first goes before the others. Throws ConfigError for one that cannot be read or is malformed, with the line.
    FlagTable(const std::vector<std::string>& names, const DataDirectory& data);
    /// The row of a name; null where there is none, and where several begin with it: then `choices` has them.
    [[nodiscard]] const FlagRow* find(const std::string& name, std::vector<std::string>& choices) const;
    [[nodiscard]] const std::vector<FlagRow>& rows() const { return rows_; }

  private:
    std::vector<FlagRow> rows_;
};

/// A flag as it is given.
struct GivenFlag {
    std::string written;  ///< with its dashes, without its value; an environment variable by its name
    std::string value;    ///< of several words with spaces between them; of a --no-flag "false"
    std::string part;     ///< of a JSON value, behind the first dot
    std::string unset;    ///< a variable of its value that has none
    std::size_t at = 0;
    bool variable = false;  ///< of the environment
    bool negated = false;   ///< as --no-flag
    std::string near;       ///< of one that is not understood: a name with an effect that is one or two letters away
    const FlagRow* row = nullptr;  ///< null: not understood
};

/// Throws ConfigError for a flag without its value and for the beginning of several names, at their place.
class GivenFlags {
  public:
    /// `text` outlives it: there are as many of these as commands in a script, whose text may be long.
    GivenFlags(const FlagTable& table, const CommandCall& command, std::size_t first, const std::string& file,
               std::string_view text);
    /// Adds flags of a file that the command names: maps in maps give names with dots.
    void add_file(const FlagTable& table, const std::string& yaml, const std::string& name, std::size_t at);

    [[nodiscard]] const std::vector<GivenFlag>& flags() const { return flags_; }
    /// Words that are neither flags nor their values.
    [[nodiscard]] const std::vector<CommandWord>& words() const { return words_; }

    [[nodiscard]] bool given(const std::string& key) const { return last(key) != nullptr; }
    /// What the flags with an effect say, to tell one arrangement from another.
    [[nodiscard]] std::string signature() const;
    [[nodiscard]] std::size_t place() const { return start_; }
    /// The value of the last flag of this key; empty where there is none. What is asked for counts as used.
    [[nodiscard]] std::string text(const std::string& key);
    /// The same as a whole number from 1 to `most`, such as 32k (32,000) or 32K (32,768); none for "auto", "none" and -1, and with
    /// `zero` for 0.
    [[nodiscard]] std::optional<std::int64_t> whole(const std::string& key, std::int64_t most = 1'000'000'000'000,
                                                    bool zero = false);
    [[nodiscard]] std::optional<double> number(const std::string& key);
    /// Keeps the first of several values of a key, and says that it did: "8, the first of --parallel 8 16 32"; empty for one value.
    [[nodiscard]] std::string keep_first(const std::string& key);
    /// Whether a switch is given and not as --no-flag or with "false".
    [[nodiscard]] bool on(const std::string& key);
    /// Given as --no-flag or with "false".
    [[nodiscard]] bool off(const std::string& key);
    /// The part of a JSON value, also where it is given as --flag.part; empty where there is none.
    [[nodiscard]] std::string part(const std::string& key, const std::string& name);
    /// What is wrong with the last flag of a key, at its place; without one at the start of the command.
    [[nodiscard]] Diagnostic error(const std::string& key, const std::string& problem) const;

    /// Throws ConfigError for flags with an effect whose variables have no value.
    void check_values() const;
    /// Flags whose keys are those of an engine (engine.*) and that nobody asked for: key and value.
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> plain_keys();
    /// Adds flags of another command before those of this one.
    void add_before(const GivenFlags& other);
    /// Says of every flag once what it did. `variables`: also of variables of the environment that no table has.
    void report(Imported& out, bool variables = true) const;

  private:
    [[nodiscard]] const GivenFlag* last(const std::string& key) const;
    [[nodiscard]] const GivenFlag* use(const std::string& key);
    [[nodiscard]] std::size_t add(const FlagTable& table, const std::vector<CommandWord>& words, std::size_t i);

    std::string file_;
    std::string_view text_;
    std::size_t start_ = 0;
    std::vector<GivenFlag> flags_;
    std::vector<CommandWord> words_;
    std::set<std::string> used_;
    std::set<std::string> plain_;  ///< keys that were asked for as plain ones alone
};

}  // namespace orrery::imports
