#pragma once
// The words and separators of a shell script, before variables are filled in.

#include "workloads/imports/shell_script.hpp"

#include <functional>
#include <string>
#include <vector>

namespace orrery::imports {

/// A part of a word under one kind of quotes: '\0' none, '<' a place to fill in, as pages write <name>.
struct ShellSegment {
    std::string text;
    char quote = 0;
};

struct ShellToken {
    enum class Kind : std::uint8_t { word, redirect, here, end, pipe, both, either, open, close, next_case };
    Kind kind = Kind::end;
    std::vector<ShellSegment> segments;  ///< of a word, of the file of a redirection, or of the text of a here-document
    std::size_t at = 0;

    [[nodiscard]] bool is(const char* literal) const {
        return kind == Kind::word && segments.size() == 1 && segments[0].quote == 0 && segments[0].text == literal;
    }
    /// Whether it ends a simple command.
    [[nodiscard]] bool ends() const { return kind != Kind::word && kind != Kind::redirect && kind != Kind::here; }
};

[[nodiscard]] bool is_shell_space(char c);
[[nodiscard]] bool is_shell_name(char c);
/// Behind the `$` at `i`: the end of what it expands, with nested braces and parentheses.
[[nodiscard]] std::size_t end_of_expansion(const std::string& text, std::size_t i);

/// The tokens of a script, the last of which is an end. Words of #SBATCH lines go to `directives`; `fail` throws what is wrong at a place.
[[nodiscard]] std::vector<ShellToken> shell_tokens(const std::string& text, std::vector<CommandWord>& directives,
                                                   const std::function<void(std::size_t, const std::string&)>& fail);

}  // namespace orrery::imports
