#pragma once
// Stable codes of errors: one for each family of rules, explained by `orrery help CODE`.
//
// Claims: a code once given keeps its meaning. Codes go by what a message says, in one table, as messages come from the few rules that every
// input passes. Scope: what a user can cause; E200 and E300 stand for what has no family of its own.

#include "sim/base/error.hpp"

#include <string>
#include <vector>

namespace orrery::inline program {

struct ErrorCode {
    const char* code;
    const char* title;
    const char* explanation;
    std::vector<const char*>
        phrases;  ///< of the messages of its family; the first row that has one of a message is its own
};

[[nodiscard]] const std::vector<ErrorCode>& error_table();

/// The code of one error. Exit code 2: bad input, 3: infeasible. What is wrong with a line of a file that is no YAML is of its own family.
[[nodiscard]] const ErrorCode& code_of(int exit_code, const Diagnostic& diagnostic);

/// Help of a code, in capitals or not; empty for what is no code.
[[nodiscard]] std::string error_help(const std::string& code);

enum class OutputFormat { text, github };
/// Throws ConfigError with the nearest name.
[[nodiscard]] OutputFormat output_format(const std::string& name);

/// An error on lines of their own, as people read it or as an annotation of GitHub (a workflow command).
[[nodiscard]] std::string error_text(const Error& error, OutputFormat format);
/// One annotation of a line of a file; `file` empty and `line` 0: of none.
[[nodiscard]] std::string github_annotation(const Diagnostic& diagnostic, const std::string& title);

}  // namespace orrery::inline program
