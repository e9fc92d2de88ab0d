#pragma once
// Errors and assertions.
//
// User errors (bad input, infeasible plans) are exceptions that carry the exit code of the program. Bugs are
// assertions: they stay on in release builds, because a wrong figure costs more than a branch.

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Base of every error a user can cause. `exit_code()` is what the program returns: 2 bad input, 3 infeasible.
class Error : public std::runtime_error {
  public:
    Error(int exit_code, const std::string& what) : std::runtime_error(what), exit_code_(exit_code) {}
    [[nodiscard]] int exit_code() const { return exit_code_; }

  private:
    int exit_code_;
};

/// One thing wrong with an input, at a place a person can jump to.
struct Diagnostic {
    std::string file;  ///< empty when the input is not a file
    int line = 0;      ///< 1-based; 0 when unknown
    int column = 0;    ///< 1-based; 0 when unknown
    std::string text;  ///< what is wrong, and what to write instead

    /// "file:line:column: error: text"
    [[nodiscard]] std::string to_string() const;
};

/// Bad input (exit code 2). Collects every problem of a file before it is thrown.
class ConfigError : public Error {
  public:
    explicit ConfigError(std::vector<Diagnostic> diagnostics);
    explicit ConfigError(const std::string& text) : ConfigError(std::vector<Diagnostic>{{{}, 0, 0, text}}) {}
    [[nodiscard]] const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

  private:
    std::vector<Diagnostic> diagnostics_;
};

/// The scenario is valid but cannot run: out of memory, no route, a plan that does not divide (exit code 3).
class InfeasibleError : public Error {
  public:
    explicit InfeasibleError(const std::string& text) : Error(3, text) {}
};

/// A bug in Orrery (exit code 4).
class InternalError : public Error {
  public:
    explicit InternalError(const std::string& text) : Error(4, text) {}
};

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, const char* function);

/// The candidate nearest to `word` by edit distance, or the first that begins with it; empty when none is close enough to suggest.
[[nodiscard]] std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace orrery

/// An invariant that holds unless Orrery has a bug. Checked in every build.
#define ORRERY_ASSERT(condition) \
    (static_cast<bool>(condition) ? void(0) : ::orrery::assertion_failed(#condition, __FILE__, __LINE__, __func__))
