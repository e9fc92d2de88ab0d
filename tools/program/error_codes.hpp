#pragma once
// What the codes of errors mean: one for each kind of mistake, explained by `orrery help CODE`.
//
// Claims: a code once given keeps its meaning. An error has its code from where it is thrown (ErrorCode). E200 and E300 stand for what has
// no code of its own.

#include "sim/base/error.hpp"

#include <string>
#include <vector>

namespace orrery::program {

struct ErrorRow {
    ErrorCode code;
    const char* title;
    const char* explanation;

    [[nodiscard]] std::string name() const;  ///< such as E204
};

/// In the order of their numbers.
[[nodiscard]] const std::vector<ErrorRow>& error_table();

/// Help of a code, in capitals or not; empty for what is no code.
[[nodiscard]] std::string error_help(const std::string& code);

enum class OutputFormat { text, github, json };
/// Throws ConfigError with the nearest name.
[[nodiscard]] OutputFormat output_format(const std::string& name);

/// An error on lines of their own: as people read it, as annotations of GitHub (workflow commands), or as JSON objects, one a line.
[[nodiscard]] std::string error_text(const Error& error, OutputFormat format);
/// One annotation of a line of a file; `file` empty and `line` 0: of none.
[[nodiscard]] std::string github_annotation(const Diagnostic& diagnostic, const std::string& title);
/// One JSON object on a line without its end: `code` (such as E204; empty: none), `title`, `message`, and where they are known `file`,
/// `line`, `column` and `suggestion`, the name that was probably meant.
[[nodiscard]] std::string diagnostic_json(const Diagnostic& diagnostic, const std::string& code,
                                          const std::string& title);

}  // namespace orrery::program
