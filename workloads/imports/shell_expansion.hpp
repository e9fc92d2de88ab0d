#pragma once
// The variables of a shell script, and what the words of its commands become with them.

#include "workloads/imports/shell_lexer.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::imports {

struct ShellVariable {
    std::vector<CommandWord> items;  ///< one, or those of an array
    std::size_t at = 0;
    bool used = false;
};

class ShellExpansion {
  public:
    /// `fail` throws what is wrong at a place of the file; `run` reads the script of a `$(...)`.
    using AtPlace = std::function<void(std::size_t, const std::string&)>;
    ShellExpansion(AtPlace fail, AtPlace run) : fail_(std::move(fail)), run_(std::move(run)) {}

    /// The words that a word gives: expansions outside of quotes are split at spaces.
    [[nodiscard]] std::vector<CommandWord> expand(const ShellToken& token);
    /// The text of a token as one word, without splitting.
    [[nodiscard]] CommandWord scalar(const ShellToken& token);
    /// What a variable holds; null where the script does not set it.
    [[nodiscard]] ShellVariable* find(const std::string& name);
    /// Counts bytes of words; fails beyond 16 MiB.
    void spend(std::size_t bytes, std::size_t at);

    std::map<std::string, ShellVariable> variables;
    bool blank = false;  ///< in tests, where a variable without a value is an empty word

  private:
    using Words = std::vector<CommandWord>;
    [[nodiscard]] std::optional<std::int64_t> arithmetic(const std::string& text);
    [[nodiscard]] Words without_value(const std::string& written, const std::string& name, std::size_t at) const;
    Words variable_at(const std::string& written, const std::string& inside, std::size_t at, std::size_t depth);
    void join(CommandWord& out, const std::string& text, std::size_t& i, std::size_t depth);
    CommandWord joined(const std::string& text, std::size_t at, std::size_t depth);
    Words expand_at(const std::string& text, std::size_t& i, std::size_t at, std::size_t depth);

    AtPlace fail_, run_;
    std::size_t spent_ = 0;
};

}  // namespace orrery::imports
