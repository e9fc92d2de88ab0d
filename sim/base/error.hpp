#pragma once
// Errors and assertions.
//
// User errors (bad input, infeasible plans) are exceptions that carry the exit code of the program. Bugs are
// assertions: they stay on in release builds, because a wrong figure costs more than a branch.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::base {

/// What kind of mistake an error is. Its number is the code that people see (E204) and search for, so it keeps its meaning; the
/// hundreds are the exit code. `orrery help CODE` explains each.
enum class ErrorCode : std::uint16_t {
    contradiction = 200,  ///< bad input that has no code of its own
    unknown_key = 201,
    missing_key = 202,
    duplicate_key = 203,
    wrong_unit = 204,
    wrong_type = 205,
    out_of_range = 206,
    unknown_name = 207,
    unknown_metric = 208,
    no_bound = 209,
    unreadable_file = 210,
    unwritable_file = 211,
    invalid_yaml = 212,
    malformed_trace = 213,
    command_line = 214,
    no_effect = 215,
    outside_policy = 216,
    infeasible = 300,  ///< a valid scenario that cannot run, for a reason that has no code of its own
    out_of_memory = 301,
    does_not_divide = 302,
    too_few_gpus = 303,
    no_route = 304,
    limits_not_met = 305,
    internal = 400,
};

/// Base of every error a user can cause. `exit_code()` is what the program returns: 2 bad input, 3 infeasible.
class Error : public std::runtime_error {
  public:
    Error(ErrorCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
    [[nodiscard]] ErrorCode code() const { return code_; }
    [[nodiscard]] int exit_code() const { return static_cast<int>(code_) / 100; }

  private:
    ErrorCode code_;
};

/// One thing wrong with an input, at a place a person can jump to.
struct Diagnostic {
    std::string file;  ///< empty when the input is not a file
    int line = 0;      ///< 1-based; 0 when unknown
    int column = 0;    ///< 1-based; 0 when unknown
    std::string text;  ///< what is wrong, and what to write instead
    ErrorCode code = ErrorCode::contradiction;

    /// "file:line:column: error: text"
    [[nodiscard]] std::string to_string() const;
};

/// Bad input (exit code 2). Collects every problem of a file before it is thrown; its code is that of the first.
class ConfigError : public Error {
  public:
    explicit ConfigError(std::vector<Diagnostic> diagnostics);
    explicit ConfigError(const std::string& text, ErrorCode code = ErrorCode::contradiction)
        : ConfigError(std::vector<Diagnostic>{{{}, 0, 0, text, code}}) {}
    [[nodiscard]] const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

  private:
    std::vector<Diagnostic> diagnostics_;
};

/// Throws what was collected, if anything was.
void throw_if_any(const std::vector<Diagnostic>& errors);

/// The scenario is valid but cannot run: out of memory, no route, a plan that does not divide (exit code 3).
class InfeasibleError : public Error {
  public:
    explicit InfeasibleError(const std::string& text, ErrorCode code = ErrorCode::infeasible) : Error(code, text) {}
};

/// A bug in Orrery (exit code 4).
class InternalError : public Error {
  public:
    explicit InternalError(const std::string& text) : Error(ErrorCode::internal, text) {}
};

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, const char* function);

/// The candidate nearest to `word` by edit distance, or the first that begins with it; empty when none is close enough to suggest.
[[nodiscard]] std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace orrery::base

/// An invariant that holds unless Orrery has a bug. Checked in every build.
#define ORRERY_ASSERT(condition) \
    (static_cast<bool>(condition) ? void(0) : ::orrery::assertion_failed(#condition, __FILE__, __LINE__, __func__))
